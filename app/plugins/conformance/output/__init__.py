"""Render a report for terminals and programs."""
