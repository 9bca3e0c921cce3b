"""Storage, the table lock and writers' heartbeats: everything of lakedex that touches files."""
