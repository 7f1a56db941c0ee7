"""Render a report for terminals, programs, CI and browsers."""
