"""Python runtime: user-defined classes, each instance in its own thread, if the operator allows code."""
