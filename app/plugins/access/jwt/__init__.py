"""JSON Web Tokens as credentials."""
