"""Commands on one model, without a server."""
