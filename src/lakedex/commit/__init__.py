"""How a write becomes visible: the transaction, its retries, and batches that count once."""
