"""Dataset readers, one module for each label format."""
