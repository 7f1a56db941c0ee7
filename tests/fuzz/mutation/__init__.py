"""Mutators: pure functions of what is sent and a source of chance."""
