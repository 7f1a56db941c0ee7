"""Queries on recorded inferences."""
