"""Metadata of requests and responses: the client's own metadata, and the rules that add output parameters."""
