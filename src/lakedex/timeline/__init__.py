"""The timeline of a table and its configuration: which commits exist, what each did, and how one comes to be."""
