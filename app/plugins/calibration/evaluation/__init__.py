"""Fit calibrations in evaluations. Only the plugin `evaluation` imports this folder."""
