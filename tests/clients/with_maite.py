"""Check that `maite.tasks.evaluate` runs over our models while ``maite.spotcheck`` checks every value of them."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from app.plugins.jatic.maite import as_maite
from tests.support.data.maite_components import Count, Images

spotcheck: Any = importlib.import_module("maite.spotcheck")


def main(folder: str) -> None:
    """Evaluate the classifier and the detector in a folder."""
    for name in ("image_classification", "object_detection"):
        protocols: Any = importlib.import_module(f"maite.protocols.{name}")
        model: Any = spotcheck.spotcheck_component(protocols.Model)(as_maite(Path(folder) / name))
        dataset: Any = spotcheck.spotcheck_component(protocols.Dataset)(Images(model))
        tasks: Any = importlib.import_module("maite.tasks")
        results, _, _ = tasks.evaluate(model=model, dataset=dataset, metric=Count(), batch_size=2)
        assert results == {"images": 3}, results
        check_rejection(protocols)


def check_rejection(protocols: Any) -> None:
    """Show that the check is not empty: a model of wrong values fails it."""

    class Wrong:
        def __init__(self) -> None:
            self.metadata = {"id": "wrong"}

        def __call__(self, batch: Any, /) -> Any:
            return [np.zeros((2, 2, 2))] * len(batch)

    try:
        spotcheck.spotcheck_component(protocols.Model)(Wrong())([np.zeros((3, 4, 4), np.uint8)])
    except (TypeError, ValueError, spotcheck.SpotcheckError):
        return
    raise AssertionError("spotcheck accepts a model of wrong values")


if __name__ == "__main__":
    main(sys.argv[1])
