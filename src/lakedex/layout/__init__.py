"""What files a table has: names, partition paths, record keys, base files, file groups and their slices."""
