"""Create, list and remove API keys."""
