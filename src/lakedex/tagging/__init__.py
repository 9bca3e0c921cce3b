"""RFC-37: the file of each incoming key."""
