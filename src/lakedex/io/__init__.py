"""Access files: storage, table locks and writers' heartbeats."""
