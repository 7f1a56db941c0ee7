"""Requests that are wrong in every way we could think of, sent to a real server: `python -m fuzz`, or `make fuzz`."""
