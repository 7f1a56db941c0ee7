"""Convert the return values of ``predict`` to predictions, one module for each task."""
