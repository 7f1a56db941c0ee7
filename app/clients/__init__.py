"""Clients of any inference engine over HTTP and gRPC. They share no code with the server."""
