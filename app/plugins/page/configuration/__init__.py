"""The options of a server, their values, and a JSON Schema of their environment variables."""
