"""Truths of recorded inferences: read them from files and annotation tools, and measure answers by them."""
