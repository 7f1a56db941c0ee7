"""Build a running service from settings. Only this package imports every other part."""
