"""Where settings become a running service: the one place that knows every part."""
