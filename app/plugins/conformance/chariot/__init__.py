"""Check Chariot's protocols."""
