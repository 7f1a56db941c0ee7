"""A starter detector of bright regions with oriented boxes. Replace it with your model."""

import math

import cv2
import numpy as np
from numpy.typing import NDArray


class Model:
    """Finds the regions that are brighter than the rest of the image."""

    def load(self) -> None:
        """Load weights from `Path(__file__).parent`. Called once, before the first image."""

    def predict(self, image: NDArray[np.uint8]) -> dict[str, list[object]]:
        """Return the objects in one (height, width, 3) RGB image.

        Boxes are centre x, centre y, width and height in pixels, and the clockwise angle in radians.
        """
        brightness: NDArray[np.uint8] = image.max(axis=2)
        _, bright = cv2.threshold(brightness, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
        count, regions = cv2.connectedComponents(bright)
        areas = np.bincount(regions.ravel())
        boxes: list[object] = []
        scores: list[object] = []
        for number in range(1, count):
            if areas[number] < 0.001 * brightness.size:
                continue
            region = regions == number
            centre, size, degrees = cv2.minAreaRect(np.argwhere(region)[:, ::-1].astype(np.float32))
            boxes.append((*centre, *size, math.radians(degrees)))
            scores.append(float(brightness[region].mean()) / 255)
        return {"boxes": boxes, "scores": scores, "labels": ["bright region"] * len(boxes)}
