"""The metadata table as a keyed store: what it holds, how it is read, how one commit writes it."""
