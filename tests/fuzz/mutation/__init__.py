"""Mutators: pure functions of a request and a random generator."""
