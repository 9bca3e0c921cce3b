"""The façade: ``Table`` and what it shows of itself."""
