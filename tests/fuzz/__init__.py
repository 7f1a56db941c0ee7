"""Send mutated requests to a real server: `python -m tests.fuzz`, or `make fuzz`."""
