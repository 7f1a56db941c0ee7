"""Compute the figures of each task."""
