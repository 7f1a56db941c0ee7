"""The image and the text that commands try models on."""

import cv2
import numpy as np

SAMPLE_TEXT = "On a good day in May, 3 ships left Dover."


def sample_image() -> bytes:
    """Return a PNG of a red square and a blue circle on grey, 640 by 480 pixels."""
    pixels = np.full((480, 640, 3), 60, np.uint8)
    cv2.rectangle(pixels, (80, 100), (280, 300), (40, 40, 230), cv2.FILLED)
    cv2.circle(pixels, (470, 280), 110, (240, 200, 40), cv2.FILLED)
    return cv2.imencode(".png", pixels)[1].tobytes()
