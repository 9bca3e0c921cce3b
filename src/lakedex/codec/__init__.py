"""Encode and decode Hudi's binary formats: HFiles, log blocks, Avro, bloom filters, hash ids and properties."""
