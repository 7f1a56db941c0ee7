"""What serving costs: the server beside the work itself, its protocols beside each other, and others beside it."""
