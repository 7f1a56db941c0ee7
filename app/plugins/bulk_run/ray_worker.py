"""The model in one worker of Ray Data."""

import hashlib
import importlib
from collections.abc import Mapping
from itertools import chain
from typing import Any

import msgspec

from app.core.plugins import registry
from app.core.server.process_setup import configure_process
from app.core.settings.images import ImageSettings, image_limits
from app.core.settings.server import SettingsError
from app.inputs import choose_model
from app.plugins.bulk_run.job import predict_all
from app.plugins.bulk_run.predictors import LocalPredictor
from app.plugins.recording.export.parquet import to_arrow
from app.plugins.recording.sources import SourceImage, metadata_entries

_arrow: Any = importlib.import_module("pyarrow")

SOURCE_IMAGE = "source_image"
"""The column with an encoded `SourceImage`, which ``charioteer run`` sends."""
encode_image = msgspec.msgpack.Encoder().encode
_decode_image = msgspec.msgpack.Decoder(SourceImage).decode


class RayWorker:
    """Answer images by a model, `batch` in one call.

    `options` and `images` are the model and image settings that are set. A GPU needs a second thread, which decodes
    images meanwhile.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        name: str | None,
        parameters: Mapping[str, object],
        images: Mapping[str, Any],
        batch: int,
        threads: int = 1,
    ) -> None:
        configure_process()
        source = choose_model(registry().model_options(**options), name)
        self._predict = LocalPredictor(source, parameters, image_limits(ImageSettings(**images)))
        self._batch, self._threads = batch, threads

    def __call__(self, batch: Any) -> Any:
        """Return a ``pyarrow.Table`` with a row for each of the batch, a table or arrays by column."""
        rows = batch.to_pylist() if isinstance(batch, _arrow.Table) else _rows(batch)
        images = [_image(row) for row in rows]
        answers = chain.from_iterable(predict_all(images, self._predict, self._threads, self._batch))
        return _arrow.Table.from_batches([to_arrow(list(answers))])


def _rows(batch: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of arrays by column."""
    return [dict(zip(batch, values, strict=True)) for values in zip(*map(list, batch.values()), strict=True)]


def _image(row: dict[str, Any]) -> SourceImage:
    if SOURCE_IMAGE in row:
        return _decode_image(row[SOURCE_IMAGE])
    data, path = row.pop("bytes", None), row.pop("path", None)
    if data is None and path is None:
        raise SettingsError(f"ray_map: Expected a column bytes or path, got {', '.join(row) or 'no column'}")
    name = hashlib.sha256(data).hexdigest() if path is None and data is not None else str(path)
    # NumPy's numbers and texts are no metadata.
    plain = {key: value.item() if hasattr(value, "item") else value for key, value in row.items()}
    return SourceImage(name=name, location=name, data=data, metadata=metadata_entries(plain))
