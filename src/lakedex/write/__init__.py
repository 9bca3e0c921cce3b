"""Writing: one action per module over one pipeline (prepare, tag, assign, merge, commit)."""
