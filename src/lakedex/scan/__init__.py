"""Reading: which files a query needs and why, and their rows."""
