"""Malformed requests: mutated golden cases (Hypothesis)."""
