"""Stores of recordings: SQLite files and PostgreSQL."""
