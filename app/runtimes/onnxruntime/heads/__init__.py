"""Models of each task type, over a graph and the reading of its outputs that its layout offers."""
