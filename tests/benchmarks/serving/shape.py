"""What the networks that are served take and give."""

__all__ = ("CLASSES", "LABELS", "SIDE", "TOP_K")

SIDE = 224
CLASSES = 1000
LABELS = [f"class {index}" for index in range(CLASSES)]
TOP_K = 5
