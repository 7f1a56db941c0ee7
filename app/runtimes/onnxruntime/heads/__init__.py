"""Models of each task type, which run a graph and decode its outputs with its layout."""
