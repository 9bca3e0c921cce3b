"""Table services: recovery, rollback, cleaning, archival, and upkeep and validation of metadata and indexes."""
