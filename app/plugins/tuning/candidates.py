"""The settings that `charioteer tune` measures, and how one row is written into a model's settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from app.core.plugins import registry
from app.core.settings.files import READABLE_BY_ALL, replacing_file
from app.core.settings.model import SETTINGS_FILE, ModelSource
from app.plugins.tuning.quantization import read_own_settings
from tasks.task import decode_task_type

_BATCHING = {"max_size": 8, "max_delay_ms": 2.0}


class Candidate(msgspec.Struct, frozen=True):
    """A row of the table: its name, and what it changes in the settings; None removes a setting or one of a group."""

    name: str
    changes: Mapping[str, Any]


CURRENT = Candidate("as they are", {})


def candidates_for(*, is_graph: bool, cores: int) -> Sequence[Candidate]:
    """Return the settings to measure, the simplest first. Only an ONNX graph (`is_graph`) has threads and runtimes."""
    single: Mapping[str, Any] = {"batching": None}
    if not is_graph:
        return [CURRENT, Candidate("no batches", single), Candidate("batches of 8", {"batching": _BATCHING})]
    onnxruntime = {**single, "runtime": None, "onnxruntime": {"threads": None}}
    openvino = {**single, "runtime": "openvino", "openvino": {"threads": None, "streams": None}}
    found = [
        CURRENT,
        Candidate("onnxruntime", onnxruntime),
        Candidate("onnxruntime, batches of 8", {**onnxruntime, "batching": _BATCHING}),
        Candidate("onnxruntime, all cores for a call", {**onnxruntime, "onnxruntime": {"threads": cores}}),
        Candidate("openvino", openvino),
        Candidate("openvino, batches of 8", {**openvino, "batching": _BATCHING}),
    ]
    return [candidate for candidate in found if cores > 1 or "cores" not in candidate.name]


def with_candidate(source: ModelSource, candidate: Candidate) -> ModelSource:
    """Return the model with the settings of a candidate."""
    settings = _merged(msgspec.to_builtins(source.settings, enc_hook=str), candidate)
    changed = msgspec.convert(settings, registry().model_settings, dec_hook=decode_task_type)
    return msgspec.structs.replace(source, settings=changed)


def write_settings(source: ModelSource, candidate: Candidate) -> Path:
    """Write a candidate into the settings file of the model's folder, and keep all other settings. Return the file.

    Raise ModelError when existing settings cannot be read. Raise OSError when the file cannot be written.
    """
    settings = _merged(read_own_settings(source), candidate)
    file = source.folder / SETTINGS_FILE
    with replacing_file(file, READABLE_BY_ALL) as replacement:
        replacement.write(msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n")
    return file


def _merged(settings: Mapping[str, Any], candidate: Candidate) -> dict[str, Any]:
    merged = dict(settings)
    for name, value in candidate.changes.items():
        if isinstance(value, dict):
            group: dict[str, Any] = {**settings.get(name, {}), **cast("dict[str, Any]", value)}
            merged[name] = {key: item for key, item in group.items() if item is not None}
        else:
            merged[name] = value
    return {name: value for name, value in merged.items() if name not in candidate.changes or value}
