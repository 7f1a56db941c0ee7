"""Settings of one model: ``model-settings.json`` in its folder. Every field is optional."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from app.core.plugins import registry
from app.core.removed import removed_advice
from app.core.settings.files import read_regular_file
from tasks.inference.request import known_names, validation_error
from tasks.task import TaskType, all_task_types, decode_task_type

T = TypeVar("T")
StructT = TypeVar("StructT", bound=msgspec.Struct)

SETTINGS_FILE = "model-settings.json"
MAX_JSON_BYTES = 64 * 1024 * 1024
"""Maximum bytes of a JSON file or template of a model. The largest known ones have a few megabytes."""

Divisor = Annotated[float, msgspec.Meta(gt=0)]
Side = Annotated[int, msgspec.Meta(ge=1, le=16384)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86400)]

_UNKNOWN = re.compile(
    r"(?:([\w.]+): |)(?:Object contains unknown field|Invalid (?:enum value|task type)) [`']?([^`']*)"
)


class ModelError(Exception):
    """A model cannot be served. The message is for its owner; no request causes this error."""


class PreprocessingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How pixels become the model's input. Absent fields are read from the model's files, or guessed and reported.

    Attributes:
        size: [height, width] of the model's input in pixels.
        resize: `letterbox` keeps the aspect ratio and pads all sides, `pad` keeps it and pads at the right and bottom,
            `line` resizes to the height and pads or squeezes the width, `stretch` does not keep it, `crop` resizes the
            shorter side and crops the centre.
        crop: the library whose rounding of sides and offsets is used; `paddle` and `mmlab` also round the sides of
            `pad`.
        crop_fraction: the fraction of a resized side that `crop` and `stretch` keep: crop_pct of timm.
        interpolation: filter for resizing.
        antialias: true to resize as Pillow, false as OpenCV; "fast" of earlier versions means true.
        fill: the grey value, 0..255, of the padding of letterbox and pad.
        scale: factor that is applied first to pixels (0..255).
        mean: subtracted after scaling, one number for each of R, G, B, or one for all channels.
        std: divisor after that, one number for each of R, G, B, or one for all channels.
        channel_order: the order of the channels in training.
        reduced_decode: whether to decode JPEGs at 1/2, 1/4 or 1/8 of their sides if the model needs no more. This is
            faster and changes answers slightly.
        channels_last: whether the input is [batch, height, width, channels], if its shape is ambiguous.
    """

    size: tuple[Side, Side] | None = None
    resize: Literal["letterbox", "pad", "line", "stretch", "crop"] | None = None
    crop: Literal["torchvision", "transformers", "paddle", "mmlab"] | None = None
    crop_fraction: Annotated[float, msgspec.Meta(ge=0.1, le=1)] | None = None
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos", "area"] | None = None
    antialias: bool | Literal["fast"] | None = None
    fill: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    scale: float | None = None
    mean: tuple[float, float, float] | float | None = None
    std: tuple[Divisor, Divisor, Divisor] | float | None = None
    channel_order: Literal["RGB", "BGR"] | None = None
    reduced_decode: bool = False
    channels_last: bool | None = None

    def __post_init__(self) -> None:
        # msgspec 0.22 crashes on a union of a tuple and a number with a constraint.
        if isinstance(self.std, int | float) and self.std <= 0:
            raise ValueError("std: Expected a number above 0, or three")


class OnnxRuntimeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and how the `onnxruntime` runtime runs a model's graphs.

    Attributes:
        devices: `cpu`, `cuda:0`, `tensorrt:0` or `openvino:GPU`, if the installed ONNX Runtime supports them;
            `auto` is the fastest of them. With several devices, each call uses the least loaded one. The default is the
            `--device` option of the server.
        instances: number of copies of the model on each device.
        threads: threads of one call on a CPU. More than one helps with few parallel requests, and slows down many.
    """

    devices: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=64)] | None = None
    instances: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    threads: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1


class BatchingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dynamic batching: one call of the model for several requests.

    Attributes:
        max_size: maximum number of inputs in one call; 1 for no batching.
        max_delay_ms: milliseconds that the first request waits for others.
    """

    max_size: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    max_delay_ms: Annotated[float, msgspec.Meta(ge=0, le=1000)] = 2.0


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a model by its owner. Unknown names are rejected, to catch typos.

    The objects that `read_settings` returns also have the settings of plugins.

    Attributes:
        name: the model's name; by default its folder's name.
        versions: the versions of a folder that are served: "all", "latest", or a list.
        version: its version; by default the version folder's name, or "1".
        runtime: the name of the runtime that loads it.
        uri: the model file, relative to the settings file.
        layout: the name of the output layout, if the shapes of the graph are ambiguous.
        outputs: the outputs of the graph that are read; by default all.
        labels: class names by class number, or the name of a file with them.
        chariot_id: the id after ``m-`` in Chariot's paths; by default the name in lower case.
        default: whether the path ``/infer`` uses this model.
        preprocessing: how pixels become its input.
        parameters: defaults of request parameters, such as score_threshold.
        onnxruntime: where and how ONNX Runtime runs it.
        precision: of the computation; bf16 needs the runtime openvino, and int8 a quantised graph. Both change answers
            slightly.
        implementation: the class of a Python model, as ``module:Class``.
        arguments: keyword arguments of the constructor of that class.
        instances: number of objects of the class, each with its own thread.
        batching: dynamic batching; off by default.
        tensor_view: whether an ONNX model of images also answers as ``<name>@tensors``, which takes and returns the
            tensors of its graph.
        max_waiting: requests for it that may wait for a worker; further ones are rejected at once.
        timeout_seconds: timeout of a call of ``predict``; for an isolated model, of any call.
        load_timeout_seconds: timeout of constructing such an object and loading its model.
    """

    name: str | None = None
    version: str | None = None
    versions: Literal["all", "latest"] | Annotated[list[str], msgspec.Meta(min_length=1)] = "all"
    task_type: TaskType | None = None
    runtime: str | None = None
    uri: str | None = None
    layout: str | None = None
    outputs: tuple[str, ...] | None = None
    labels: tuple[str, ...] | str | None = None
    chariot_id: str | None = None
    default: bool = False
    preprocessing: PreprocessingSettings = PreprocessingSettings()
    parameters: Mapping[str, object] = {}
    onnxruntime: OnnxRuntimeSettings = OnnxRuntimeSettings()
    precision: Literal["fp32", "bf16", "int8"] = "fp32"
    implementation: str | None = None
    arguments: Mapping[str, object] = {}
    instances: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    batching: BatchingSettings = BatchingSettings()
    tensor_view: bool = True
    max_waiting: Annotated[int, msgspec.Meta(ge=0)] | None = None
    timeout_seconds: Seconds = 60.0
    load_timeout_seconds: Seconds = 600.0

    def of(self, kind: type[StructT]) -> StructT:
        """Return the settings of a plugin, of the type that it lists in `Plugin.model_settings`.

        Settings that were not read from a file may lack them; the result then has their defaults.
        """
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        part = next((value for value in values.values() if type(value) is kind), None)
        return part or kind(**{name: values[name] for name in kind.__struct_fields__ if name in values})


class ImportedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a model that was made for another server.

    Attributes:
        file: the name of its file.
        settings: our settings with the same effect, without those that ``model-settings.json`` overrides.
        ignored: the names in it that have no effect here.
    """

    file: str
    settings: Mapping[str, object]
    ignored: tuple[str, ...]


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one model on disk.

    Attributes:
        name: the name under which it is served.
        file: the model file, if the user or `uri` names one; otherwise the runtime searches for it.
        imported: the configuration of another server in its folder; `settings` contains its settings.
        root: the model's own folder, if `folder` is the folder of a version.
        allow_code: whether the operator allows models to run their own Python code.
        require_manifest: whether the operator requires a manifest with the digest of every file.
        signing_key: the operator's file of public keys; the manifest must be signed with one.
        links: folders to which links in the model's folder may lead.
        options: the operator's options of plugins; `of` returns the options of one plugin.
        fault: why it cannot be served, if this is known before its files are opened.
    """

    name: str
    version: str
    folder: Path
    file: Path | None = None
    settings: ModelSettings = ModelSettings()
    imported: ImportedConfig | None = None
    root: Path | None = None
    allow_code: bool = False
    require_manifest: bool = False
    signing_key: Path | None = None
    links: tuple[Path, ...] = ()
    options: tuple[object, ...] = ()
    fault: str | None = None

    def of(self, kind: type[T]) -> T:
        """Return the operator's options of a plugin, of the class that it lists in `Plugin.model_options`."""
        return next((part for part in self.options if isinstance(part, kind)), None) or kind()


def read_settings(folder: Path) -> ModelSettings:
    """Return the settings in `folder`, or the defaults if it has no settings file.

    Raise ModelError naming the file and the invalid field.
    """
    path, kind = folder / SETTINGS_FILE, registry().model_settings
    try:
        return read_json_file(path, kind) if path.is_file() else kind()
    except ModelError as error:
        raise ModelError(f"{error}{_known_names(str(error).removeprefix(f'{path}: '))}") from None


def _known_names(error_text: str) -> str:
    """Return the known names if `error_text` is about an unknown field or choice, else ""."""
    if not (unknown := _UNKNOWN.match(error_text)):
        return ""
    is_task = unknown[1] == "task_type"
    kind = "task type" if is_task else "setting"
    if (is_task or "unknown field" in unknown[0]) and (advice := removed_advice(f"{kind} {unknown[2]}")):
        return f"; the {advice}"
    known = all_task_types() if is_task else known_names(registry().model_settings, unknown[1] or "")
    return f"; known are {', '.join(known)}{registry().advice()}"


def read_json_file(path: Path, parsed_type: type[T], *, non_finite: bool = False) -> T:
    """Read a JSON file of a model as `parsed_type`.

    `non_finite` accepts NaN and Infinity, which Python's module writes and JSON does not allow. Raise ModelError naming
    the file and the invalid field.
    """
    try:
        content = read_bounded(path)
        if non_finite:
            return msgspec.convert(json.loads(content), parsed_type, dec_hook=decode_task_type)
        return msgspec.json.decode(content, type=parsed_type, dec_hook=decode_task_type)
    except msgspec.ValidationError as error:
        raise ModelError(f"{path}: {validation_error(error)}") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from None


def read_bounded(path: Path, max_bytes: int = MAX_JSON_BYTES) -> bytes:
    """Return the content of a model's regular file of at most `max_bytes` bytes.

    Raise ModelError if it cannot be read or is larger, and for pipes and devices, whose end might never come.
    """
    try:
        return read_regular_file(path, max_bytes)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
