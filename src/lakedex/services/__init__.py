"""What keeps a table in order: the lock, undoing failed writes, and taking old files and instants away."""
