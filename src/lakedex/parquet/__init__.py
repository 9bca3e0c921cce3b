"""Read and write base files as Parquet: the only package that imports ``pyarrow.parquet``."""
