"""Malformed requests: decoders guided by coverage (atheris), mutated golden cases and model states (Hypothesis)."""
