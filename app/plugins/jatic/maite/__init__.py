"""Classifiers and detectors as models of MAITE, and its models as Python classes."""
