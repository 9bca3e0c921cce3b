"""A table at one moment: its settings, timelines, schema, partitions and file slices."""
