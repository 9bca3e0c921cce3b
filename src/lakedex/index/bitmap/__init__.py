"""RFC-92's bitmap index: per column value and file group the positions of the rows that hold it."""
