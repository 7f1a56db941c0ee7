"""Charioteer: any vision model behind standard inference protocols."""

__version__ = "0.3.0"
