"""Dataset readers: `read` chooses the one for a label format."""
