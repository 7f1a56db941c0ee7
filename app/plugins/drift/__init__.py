"""Detect drift of a model's inputs and predictions: baselines, tests, a monitor."""
