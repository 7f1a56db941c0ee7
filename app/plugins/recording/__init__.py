"""Record every inference: stores, queries, exports."""
