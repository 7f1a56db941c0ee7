"""Every inference kept: stores, queries, exports."""
