"""Evaluate models on labelled data: datasets, metrics, reports."""
