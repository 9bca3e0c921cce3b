"""Bytes in, values out: HFiles, log blocks, Avro, bloom filters, hash ids, properties. Nothing here opens a file."""
