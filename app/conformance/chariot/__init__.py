"""The clauses of Chariot's protocols."""
