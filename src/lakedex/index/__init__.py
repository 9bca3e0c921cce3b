"""Indexes: how each is built, how it prunes files for a query, how it tags keys for an upsert."""
