"""The Spark engine and DataFrames of tables; the only package that imports pyspark."""
