"""Run a real server under mixed traffic and injected faults, and check every answer: `make soak`."""
