"""Names and structure of a table's files: partition paths, record keys, base and log files, file groups, slices."""
