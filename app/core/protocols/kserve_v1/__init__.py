"""KServe's V1 protocol, with CloudEvents."""
