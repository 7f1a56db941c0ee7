"""A description of the server in OpenAPI 3.1, at `/schema`."""
