"""SAHI with the same detector, from an environment of its own: ``--sahi <site-packages of that environment>``."""

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Detect = Callable[[NDArray[np.uint8]], tuple[NDArray[np.float32], NDArray[np.float32], Sequence[str]]]
"""Returns the boxes, scores and labels in an image."""


def predictor(site_packages: Path, detect: Detect, names: Sequence[str]) -> Any:
    """Return a function of an image, the size of tiles and their overlap that returns what `detect` does, by SAHI."""
    # At the end of the path, so that its packages replace none of ours.
    sys.path.append(str(site_packages))
    base: Any = importlib.import_module("sahi.models.base").DetectionModel
    predict: Any = importlib.import_module("sahi.predict").get_sliced_prediction
    prediction_class: Any = importlib.import_module("sahi.prediction").ObjectPrediction

    class Model(base):
        def load_model(self) -> None:
            self.model = detect
            self.category_mapping = {str(number): name for number, name in enumerate(names)}

        def set_model(self, model: Any, **_: Any) -> None:
            self.model = model

        def perform_inference(self, image: NDArray[np.uint8]) -> None:
            self._original_predictions = detect(np.ascontiguousarray(image))

        def _create_object_prediction_list_from_original_predictions(
            self, shift_amount_list: Any = None, full_shape_list: Any = None
        ) -> None:
            shift, full = (values[0] if values and isinstance(values[0], list) else values
                           for values in (shift_amount_list or [0, 0], full_shape_list))  # fmt: skip
            boxes, scores, labels = self._original_predictions
            self._object_prediction_list_per_image = [
                [
                    prediction_class(
                        bbox=box.tolist(), score=float(score), category_id=list(names).index(label),
                        category_name=label, shift_amount=shift, full_shape=full,
                    )
                    for box, score, label in zip(boxes, scores, labels, strict=True)
                ]
            ]  # fmt: skip

    model = Model(confidence_threshold=0.3, device="cpu", load_at_init=True)

    def run(image: NDArray[np.uint8], tile: int, overlap: float) -> Any:
        result = predict(
            image, model, slice_height=tile, slice_width=tile, overlap_height_ratio=overlap,
            overlap_width_ratio=overlap, verbose=0,
        )  # fmt: skip
        found = result.object_prediction_list
        boxes = np.array([item.bbox.to_xyxy() for item in found], np.float32).reshape(-1, 4)
        return boxes, np.array([item.score.value for item in found], np.float32), [item.category.name for item in found]

    return run


def merge(site_packages: Path, boxes: NDArray[np.float32], scores: NDArray[np.float32]) -> Any:
    """Return the boxes and scores of one class as SAHI merges them by default."""
    sys.path.append(str(site_packages))
    prediction_class: Any = importlib.import_module("sahi.prediction").ObjectPrediction
    postprocess: Any = importlib.import_module("sahi.postprocess.combine").GreedyNMMPostprocess
    found = [
        prediction_class(bbox=box, score=score, category_id=0, category_name="object")
        for box, score in zip(boxes.tolist(), scores.tolist(), strict=True)
    ]
    merged = postprocess(match_threshold=0.5, match_metric="IOS", class_agnostic=False)(found)
    kept = np.array([item.bbox.to_xyxy() for item in merged], np.float32).reshape(-1, 4)
    return kept, np.array([item.score.value for item in merged], np.float32)
