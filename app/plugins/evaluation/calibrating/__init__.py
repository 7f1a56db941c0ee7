"""Fit calibrations in evaluations."""
