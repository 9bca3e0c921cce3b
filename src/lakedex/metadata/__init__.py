"""Read and write Hudi's metadata table as a keyed store."""
