"""Define the input and output of the served networks."""

__all__ = ("CLASSES", "LABELS", "SIDE", "TOP_K")

SIDE = 224
CLASSES = 1000
LABELS = [f"class {index}" for index in range(CLASSES)]
TOP_K = 5
