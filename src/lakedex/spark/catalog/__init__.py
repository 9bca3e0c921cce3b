"""A Spark SQL catalog of the tables in a folder: Spark's DataSource V2 interfaces, answered from Python."""
