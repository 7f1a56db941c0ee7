"""Truths: check, store, match, import, measure."""
