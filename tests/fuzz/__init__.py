"""Malformed requests: mutated golden cases, and states of models (Hypothesis)."""
