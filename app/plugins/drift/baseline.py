"""The file of a baseline: measurements of reference images.

A NumPy archive (npz) of arrays alone, read without pickle: ``numbers`` float64 [n, f], ``embeddings`` float32 [n, d],
``counts`` int64 [n, labels], and ``header``, UTF-8 JSON as uint8.
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.settings.files import replacing_file
from app.plugins.drift.sample import MIN_IMAGES, DriftError, Sample, check_finite

FILE_NAME = "drift-baseline.npz"
"""Name of the file in a model folder."""

FORMAT = 1
_MAX_BYTES = 1 << 30
_ARRAYS: Mapping[str, tuple[str, int]] = {
    "numbers": ("f8", 2),
    "embeddings": ("f4", 2),
    "counts": ("i8", 2),
    "header": ("u1", 1),
}


class Baseline(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A sample and its origin.

    `embedder` is the file name of the graph that made its embeddings, and `embedder_digest` the SHA-256 of this file.
    `model` answered, and `source` had the images. Each is empty if there is none. `created` is ISO 8601, UTC.
    """

    sample: Sample
    embedder: str = ""
    embedder_digest: str = ""
    model: str = ""
    source: str = ""
    created: str = ""


_HEADER_FIELDS = {
    field.name: field.type
    for struct in (Sample, Baseline)
    for field in msgspec.structs.fields(struct)
    if field.name not in (*_ARRAYS, "sample")
}
_Header: Any = msgspec.defstruct("_Header", [("format", int), *_HEADER_FIELDS.items()], kw_only=True)
"""The fields of the sample that are no arrays, then the origin."""


class _Format(msgspec.Struct):
    format: int


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write the file atomically."""
    fields: dict[str, Any] = msgspec.structs.asdict(baseline.sample) | msgspec.structs.asdict(baseline)
    arrays = {name: fields[name] for name in _ARRAYS if name != "header"}
    header = _Header(format=FORMAT, **{name: fields[name] for name in _HEADER_FIELDS})
    header_bytes = np.frombuffer(msgspec.json.encode(header), np.uint8)
    with replacing_file(path) as file:
        np.savez(file, allow_pickle=False, header=header_bytes, **arrays)


def read_baseline(path: Path) -> Baseline:
    """Read the file, and reject one that is not a baseline, has another version, or is inconsistent (DriftError)."""
    try:
        arrays = _read_arrays(path)
        raw = arrays["header"].tobytes()
        version = msgspec.json.decode(raw, type=_Format).format
        if version != FORMAT:
            raise ValueError(f"it has format {version}, and this program reads format {FORMAT}; make it again")
        header = msgspec.json.decode(raw, type=_Header)
    except OSError as error:
        raise DriftError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, LookupError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile) as error:
        raise DriftError(f"{path} is not a baseline: {error or type(error).__name__}") from None
    rows = len(header.ids)
    shapes = (arrays["numbers"].shape, arrays["embeddings"].shape[:1], arrays["counts"].shape)
    if shapes != ((rows, len(header.features)), (rows,), (rows, len(header.labels))) or len(header.metadata) != rows:
        raise DriftError(f"{path} is not a baseline: its parts are not of the same {rows} images")
    if rows < MIN_IMAGES or not header.features:
        raise DriftError(f"{path}: Expected a baseline of {MIN_IMAGES} images at least, got {rows}")
    if arrays["counts"].size and arrays["counts"].min() < 0:
        raise DriftError(f"{path} is not a baseline: some of its counts are below 0")
    fields: dict[str, Any] = {**msgspec.structs.asdict(header), **arrays}
    sample = Sample(**{name: fields[name] for name in Sample.__struct_fields__})
    check_finite(sample, str(path))
    origin = {name: fields[name] for name in Baseline.__struct_fields__ if name != "sample"}
    return Baseline(sample=sample, **origin)


def _read_arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > _MAX_BYTES:
            raise ValueError("it unfolds to more than 1 GiB")
    arrays: dict[str, NDArray[Any]] = {}
    with np.load(path, allow_pickle=False) as archive:
        for name, (dtype, dimensions) in _ARRAYS.items():
            if name not in archive:
                raise ValueError(f"it has no {name}")
            array = archive[name]
            if array.dtype != np.dtype(dtype) or array.ndim != dimensions:
                raise ValueError(f"its {name} are {array.dtype} of {array.ndim} dimensions")
            arrays[name] = array
    return arrays
