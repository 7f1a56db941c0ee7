"""A run on a Ray cluster: Ray Data distributes the images, restarts lost workers and repeats their batches."""

import importlib
import logging
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from app.core.settings.server import SettingsError
from app.plugins.bulk_run.job import Answer, ModelWork, RunJob, batched
from app.plugins.bulk_run.ray_map import worker_class
from app.plugins.bulk_run.ray_worker import SOURCE_IMAGE, encode_image
from app.plugins.recording.sources import SourceImage

# The type checker's environment has no Ray, so its names are Any.
_ray: Any = importlib.import_module("ray")
_data: Any = importlib.import_module("ray.data")
_arrow: Any = importlib.import_module("pyarrow")

_WORKERS = 2
_BLOCK = 64
"""Images in one task of Ray, which is repeated when its worker is lost."""


def ray_job(work: ModelWork, address: str, num_gpus: float | None) -> RunJob:
    """Return a job for workers on a Ray cluster, each with the model, which all machines have at the same path."""
    arguments = {"options": _set(work.options), "name": work.name, "parameters": work.parameters}
    arguments |= {"images": _set(work.image_settings), "batch": work.batch, "threads": 2 if num_gpus else 1}

    def answer(source_images: Iterable[SourceImage]) -> Iterator[Any]:
        blocks = [
            _arrow.table({SOURCE_IMAGE: _arrow.array(map(encode_image, block), _arrow.binary())})
            for block in batched(source_images, _BLOCK)
        ]
        if not blocks:
            return
        dataset = _data.from_arrow(blocks).map_batches(
            worker_class(arguments),
            batch_size=None,
            batch_format="pyarrow",
            compute=_data.ActorPoolStrategy(size=work.concurrency or _WORKERS),
            num_gpus=num_gpus,
        )
        for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
            yield from table.to_batches()

    @contextmanager
    def opened() -> Generator[Answer]:
        try:
            _ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            _data.DataContext.get_current().enable_progress_bars = False
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            try:
                yield answer
            finally:
                _ray.shutdown()
        except (ConnectionError, _ray.exceptions.RayError) as error:
            raise SettingsError(f"--ray {address}: {error}") from None

    return RunJob(identity=work.local_identity(), open=opened)


def _set(options: Any) -> Mapping[str, Any]:
    """Return the options that differ from their defaults."""
    return {field.name: value for field in fields(options) if (value := getattr(options, field.name)) != field.default}
