"""Run a model in its own process, so that a crash or a hung call does not affect the server."""
