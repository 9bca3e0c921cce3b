"""Read and change the timeline of a table and its configuration."""
