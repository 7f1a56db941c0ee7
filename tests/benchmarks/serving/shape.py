"""Define the input and output of the served networks."""

SIDE = 224
CLASSES = 1000
LABELS = [f"class {index}" for index in range(CLASSES)]
TOP_K = 5
SCORE_THRESHOLD = 0.5
IOU_THRESHOLD = 0.45
