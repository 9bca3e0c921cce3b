"""The engine without Spark: threads of this process, rows as Arrow tables."""
