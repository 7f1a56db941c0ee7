"""Call an engine, and keep the exchanges."""
