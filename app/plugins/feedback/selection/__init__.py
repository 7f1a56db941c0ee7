"""Select what to record and what to label."""
