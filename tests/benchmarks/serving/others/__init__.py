"""Other servers, set up as their documentation does it, each in an environment of its own."""
