"""A starter segmenter of bright regions. Replace it with your model."""

import cv2
import numpy as np
from numpy.typing import NDArray


class Model:
    """Finds the regions that are brighter than the rest of the image."""

    def load(self) -> None:
        """Load weights from `Path(__file__).parent`. Called once, before the first image."""

    def predict(self, image: NDArray[np.uint8]) -> dict[str, object]:
        """Return the objects in one (height, width, 3) RGB image, each with a (height, width) mask."""
        brightness: NDArray[np.uint8] = image.max(axis=2)
        _, bright = cv2.threshold(brightness, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
        count, regions = cv2.connectedComponents(bright)
        areas = np.bincount(regions.ravel())
        masks = [regions == number for number in range(1, count) if areas[number] >= 0.001 * brightness.size]
        scores = [float(brightness[mask].mean()) / 255 for mask in masks]
        return {"masks": masks, "scores": scores, "labels": ["bright region"] * len(masks)}
