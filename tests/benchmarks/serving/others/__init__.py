"""Other servers, set up as in their documentation, each in its own environment."""
