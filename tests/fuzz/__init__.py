"""Fuzzing of everything that reads bytes: mutated real files, and what must come of them."""
