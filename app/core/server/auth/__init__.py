"""Authenticate and authorize clients: keys, tokens, permissions, rate limits and the audit log."""
