"""Render a report for terminals, programs and browsers."""
