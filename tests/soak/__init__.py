"""A real server under mixed traffic and injected faults, every answer held against what it should be: `make soak`."""
