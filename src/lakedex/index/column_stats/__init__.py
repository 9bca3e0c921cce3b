"""Column and partition statistics: bounds and counts, their storage, and pruning by them."""
