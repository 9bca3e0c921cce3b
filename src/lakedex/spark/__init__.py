"""The engine on Spark, and DataFrames of tables. The only package that imports pyspark."""
