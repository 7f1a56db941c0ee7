"""What is made of a graph's outputs, one module for each task type."""
