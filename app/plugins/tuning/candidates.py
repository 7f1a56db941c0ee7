"""The set-ups that `charioteer tune` compares, and how one is written into a model's settings."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from app.core.plugins import registry
from app.core.settings.files import READABLE_BY_ALL, replacing_file
from app.core.settings.model import SETTINGS_FILE, ModelSource
from app.plugins.tuning.quantization import read_own_settings
from tasks.task import decode_task_type

ONNXRUNTIME, OPENVINO = "onnxruntime", "openvino"


class Candidate(msgspec.Struct, frozen=True):
    """A candidate: settings with which to serve a model.

    The first request of a batch waits for `delay_ms` milliseconds. `threads` are those of one call. `runtime` is
    `onnxruntime` or `openvino`, None for the model's own; `precision` is `fp32`, `bf16` or `int8`. With
    `reduced_decode`, large JPEGs are decoded at a fraction of their size. With `opencv_resize`, OpenCV resizes images
    of a model whose own resize is antialiased.
    """

    batch: int = 1
    delay_ms: float = 0.0
    threads: int = 1
    runtime: str | None = None
    precision: str = "fp32"
    reduced_decode: bool = False
    opencv_resize: bool = False


def all_candidates(
    batches: Iterable[int], threads: Iterable[int], delay_ms: float, variant: Candidate | None = None
) -> Sequence[Candidate]:
    """Return every combination of batch size and thread count for a variant, the simplest first."""
    base, sizes = variant or Candidate(), sorted({1, *batches})
    return [
        msgspec.structs.replace(base, batch=size, delay_ms=delay_ms if size > 1 else 0.0, threads=count)
        for count in sorted({1, *threads})
        for size in sizes
    ]


def current_candidate(source: ModelSource, *, is_graph: bool) -> Candidate:
    """Return the candidate that a model's settings describe now. Only an ONNX graph (`is_graph`) has other runtimes."""
    settings = source.settings
    runtime = (OPENVINO if settings.runtime == OPENVINO else ONNXRUNTIME) if is_graph else None
    batch = settings.batching.max_size
    return Candidate(
        batch=batch,
        delay_ms=settings.batching.max_delay_ms if batch > 1 else 0.0,
        threads=getattr(settings, runtime or ONNXRUNTIME).threads,
        runtime=runtime,
        precision=settings.precision,
        reduced_decode=settings.preprocessing.reduced_decode,
    )


def variants(
    current: Candidate,
    runtimes: Sequence[str],
    precisions: Sequence[str],
    decodes: Sequence[str],
    resizes: Sequence[str] = (),
) -> Sequence[Candidate]:
    """Return the combinations that may change answers, the simplest first; the first is the reference.

    A model that is int8 already stays so. `decodes` are `full`, and `reduced` for JPEGs. `resizes` are
    `own`, and `opencv` for models whose own resize is antialiased.
    """
    if current.runtime is None:
        return [Candidate()]
    allowed = ("int8",) if current.precision == "int8" else ("fp32", *(name for name in precisions if name != "fp32"))
    return [
        Candidate(
            runtime=runtime, precision=precision, reduced_decode=decode == "reduced", opencv_resize=resize == "opencv"
        )
        for resize in ("own", *(name for name in resizes if name != "own"))
        for decode in ("full", *(name for name in decodes if name != "full"))
        for precision in allowed
        for runtime in dict.fromkeys((ONNXRUNTIME, *runtimes))
        if (runtime, precision) != (ONNXRUNTIME, "bf16")
    ]


def with_candidate(source: ModelSource, candidate: Candidate, workers: int) -> ModelSource:
    """Return the model with the settings of a candidate."""
    settings = _merged(msgspec.to_builtins(source.settings, enc_hook=str), candidate, workers)
    changed = msgspec.convert(settings, registry().model_settings_class, dec_hook=decode_task_type)
    return msgspec.structs.replace(source, settings=changed)


def write_settings(source: ModelSource, candidate: Candidate, workers: int) -> Path:
    """Write a candidate into the settings file of the model's folder, and keep all other settings. Return the file.

    Raise ModelError when existing settings cannot be read. Raise OSError when the file cannot be written.
    """
    settings = _merged(read_own_settings(source), candidate, workers)
    file = source.folder / SETTINGS_FILE
    with replacing_file(file, READABLE_BY_ALL) as replacement:
        replacement.write(msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n")
    return file


def _merged(settings: Mapping[str, Any], candidate: Candidate, workers: int) -> dict[str, Any]:
    """Return the content of a settings file with the values of a candidate, without those that are the default."""
    uses_openvino = candidate.runtime == OPENVINO
    threads = candidate.threads if candidate.threads > 1 else None
    batching = {"max_size": candidate.batch, "max_delay_ms": candidate.delay_ms} if candidate.batch > 1 else None
    groups: dict[str, dict[str, object]] = {ONNXRUNTIME: {"threads": None if uses_openvino else threads}}
    changes: dict[str, Any] = {"batching": batching}
    if candidate.runtime is not None:
        if uses_openvino or settings.get("runtime") == OPENVINO:
            changes["runtime"] = candidate.runtime
        changes["precision"] = None if candidate.precision == "fp32" else candidate.precision
        # Calls with several threads share the cores.
        streams = max(1, workers // threads) if threads and uses_openvino else None
        groups[OPENVINO] = {"threads": threads if uses_openvino else None, "streams": streams}
        groups["preprocessing"] = {"reduced_decode": candidate.reduced_decode or None}
        if candidate.opencv_resize:
            groups["preprocessing"]["antialias"] = False
    for group, values in groups.items():
        present = {**settings.get(group, {}), **values}
        changes[group] = {name: value for name, value in present.items() if value is not None} or None
    return {name: value for name, value in {**settings, **changes}.items() if value is not None or name not in changes}
