"""What is said about an exchange: the sender's own metadata, and what rules add to an answer."""
