"""A model as a class for ``ray.data.Dataset.map_batches``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ("ray_map",)


def ray_map(model: Path | str, *, allow_code: bool = False, batch: int = 1, **parameters: object) -> type:
    """Return a class for ``map_batches`` of Ray Data, which loads the model once in each worker.

    It reads the column ``bytes`` (encoded images, as of ``ray.data.read_binary_files``), or else ``path``. Other
    columns are metadata. Its output has the columns of a recording: ``labels``, ``scores``, ``records`` as JSON,
    ``error`` and more.

    Args:
        model: a model file, or a model's folder, on each machine of the cluster.
        allow_code: whether the model may run its own Python code.
        batch: images in one call of the model.
        parameters: request parameters, such as ``score_threshold``.
    """
    options = {"model": Path(model), "allow_code": allow_code}
    return worker_class({"options": options, "name": None, "parameters": parameters, "images": {}, "batch": batch})


def worker_class(arguments: Mapping[str, Any]) -> type:
    """Return a class that calls the `RayWorker` of these arguments.

    Ray sends a class inside a function by value. So the worker process imports Charioteer only here, under names that
    do not collide with its packages.
    """

    class Predict:
        """The model in one worker."""

        def __init__(self) -> None:
            import charioteer

            self._worker = charioteer.import_own("app.plugins.bulk_run.ray_worker").RayWorker(**arguments)

        def __call__(self, batch: Any) -> Any:
            return self._worker(batch)

    return Predict
