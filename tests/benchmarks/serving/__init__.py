"""Measure the cost of serving: the server against the bare work, its protocols, and other servers."""
