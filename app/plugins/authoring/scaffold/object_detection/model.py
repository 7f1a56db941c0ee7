"""A starter detector of bright regions. Replace it with your model."""

import cv2
import numpy as np
from numpy.typing import NDArray

from charioteer import DetectionParameters


class Model:
    """Finds the regions that are brighter than the rest of the image."""

    def load(self) -> None:
        """Load weights from `Path(__file__).parent`. Called once, before the first image."""

    def predict(self, image: NDArray[np.uint8], parameters: DetectionParameters) -> list[dict[str, object]]:
        """Return the objects in one (height, width, 3) RGB image, with boxes in pixels."""
        brightness: NDArray[np.uint8] = image.max(axis=2)
        _, bright = cv2.threshold(brightness, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
        _, regions, boxes, _ = cv2.connectedComponentsWithStats(bright)
        objects: list[dict[str, object]] = []
        for number, (left, top, width, height, area) in enumerate(boxes.tolist()):
            if number == 0 or area < 0.001 * brightness.size:
                continue
            score = float(brightness[regions == number].mean()) / 255
            if score >= parameters.score_threshold:
                box = {"xmin": left, "ymin": top, "xmax": left + width, "ymax": top + height}
                objects.append({"label": "bright region", "score": score, **box})
        return objects
