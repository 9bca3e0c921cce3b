"""A Spark SQL catalog of the tables in a folder: DataSource V2 interfaces implemented in Python."""
