"""Settings of one model: ``model-settings.json`` beside its files, every field optional."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from tasks.exchange.parameters import explained
from tasks.task import TaskType

__all__ = (
    "LARGEST_JSON",
    "SETTINGS_FILE",
    "BatchingSettings",
    "ModelError",
    "ModelSettings",
    "ModelSource",
    "OnnxRuntimeSettings",
    "PreprocessingSettings",
    "TransformersSettings",
    "read_bounded",
    "read_json_file",
    "read_settings",
)

T = TypeVar("T")

SETTINGS_FILE = "model-settings.json"
LARGEST_JSON = 64 * 1024 * 1024
"""Bytes of a JSON file, or a template, that belongs to a model. The largest in use hold some megabytes."""

Divisor = Annotated[float, msgspec.Meta(gt=0)]
Side = Annotated[int, msgspec.Meta(ge=1, le=16384)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86400)]


class ModelError(Exception):
    """A model that cannot be served, with a sentence for its owner. Never a request's fault."""


class PreprocessingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How pixels become the model's input. What is absent is read from the model's own files, or guessed and said so.

    Attributes:
        size: [height, width] of the model's input in pixels.
        resize: `letterbox` keeps the aspect ratio and pads around the picture, `pad` does so to its right and below it,
            `stretch` does not keep it, `crop` resizes the shorter side and cuts out the centre.
        crop_fraction: of a side that was resized, how much `crop` and `stretch` keep of it: timm's crop_pct.
        fill: the grey, 0..255, that letterbox and pad fill up with.
        scale: pixels (0..255) are multiplied by this first.
        mean: then this is subtracted, a number for each of R, G, B.
        std: then divided by this, a number for each of R, G, B.
        channel_order: the order of the channels that the model was trained with.
        reduced_decode: whether JPEGs are decoded at a half, a quarter or an eighth of their sides where the model sees
            no more of them, which costs less and changes answers a little.
        channels_last: whether the input is [batch, height, width, 3], where its shape does not tell.
    """

    size: tuple[Side, Side] | None = None
    resize: Literal["letterbox", "pad", "stretch", "crop"] | None = None
    crop_fraction: Annotated[float, msgspec.Meta(ge=0.1, le=1)] | None = None
    fill: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    scale: float | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[Divisor, Divisor, Divisor] | None = None
    channel_order: Literal["RGB", "BGR"] | None = None
    reduced_decode: bool = False
    channels_last: bool | None = None


class TransformersSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the `transformers` runtime runs a model.

    Attributes:
        device: where: torch's name of it, such as `cpu` or `cuda:1`; `auto` is a GPU where there is one.
        dtype: of the weights and the computation; `auto` is float32 on a processor, and on a GPU what the files hold.
        compile: whether torch.compile makes machine code of the model when it is loaded; needs a C++ compiler. Such a
            model answers one call at a time.
    """

    device: Annotated[str, msgspec.Meta(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = "auto"
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    compile: bool = False


class OnnxRuntimeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and how the `onnxruntime` runtime runs a model's graphs.

    Attributes:
        devices: `cpu`, `cuda:0`, `tensorrt:0`, `openvino:GPU` or `coreml`, as far as the ONNX Runtime that is installed
            has them; `auto` is the best of them. Of several, each call takes the one that has least to do. Where none
            is named it is what the server was told.
        instances: so many copies of the model on each device.
        threads: of one call on a processor. More than one pays where requests are few, and costs where they are many.
    """

    devices: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=64)] | None = None
    instances: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    threads: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1


class BatchingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How inputs of several requests are gathered into one call of the model. `charioteer tune` finds what pays.

    Attributes:
        max_size: inputs of one call; 1 for no gathering.
        max_delay_ms: milliseconds that the first request waits for others.
    """

    max_size: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    max_delay_ms: Annotated[float, msgspec.Meta(ge=0, le=1000)] = 2.0


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the owner of a model declares about it. A name that is not listed here is refused, because it is a typo.

    Attributes:
        name: the model's name; its folder's name when absent.
        versions: of a folder with versions in it, which ones are served: "all", "latest", or a list of them.
        version: its version; the version folder's name, or "1", when absent.
        version_labels: versions by names for them, such as "stable", which TensorFlow Serving's clients may ask for.
        task_type: what it does.
        runtime: the name of the runtime that loads it.
        uri: the model file, relative to the settings file.
        layout: the name of the output layout, for a graph whose shapes do not tell.
        labels: class names by class number.
        chariot_id: the id that Chariot puts into its path after ``m-``; the name in lower case when absent.
        default: whether the bare ``/infer`` path means this model.
        preprocessing: how pixels become its input.
        parameters: defaults of request parameters, such as score_threshold.
        onnxruntime: where and how ONNX Runtime runs it.
        transformers: where and how torch runs it.
        implementation: of a Python model, its class as ``module:Class``.
        arguments: what that class is constructed with, by name.
        instances: so many objects of it are made, each with a thread of its own.
        batching: how inputs of several requests are gathered into one call; not at all when absent.
        max_waiting: so many requests for it may wait for a worker; the next one is refused at once.
        timeout_seconds: a call of its ``predict`` may take so long; of a model that is isolated, any call.
        load_timeout_seconds: making such an object and loading it may take so long.
        isolate: whether it runs in a process of its own, of whatever runtime it is.
        memory_limit_bytes: memory that this process may reserve (RLIMIT_DATA of setrlimit(2)).
    """

    name: str | None = None
    version: str | None = None
    versions: Literal["all", "latest"] | list[str] = "all"
    version_labels: Mapping[str, str] = {}
    task_type: TaskType | None = None
    runtime: str | None = None
    uri: str | None = None
    layout: str | None = None
    labels: tuple[str, ...] | None = None
    chariot_id: str | None = None
    default: bool = False
    preprocessing: PreprocessingSettings = PreprocessingSettings()
    parameters: Mapping[str, object] = {}
    onnxruntime: OnnxRuntimeSettings = OnnxRuntimeSettings()
    transformers: TransformersSettings = TransformersSettings()
    implementation: str | None = None
    arguments: Mapping[str, object] = {}
    instances: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    batching: BatchingSettings = BatchingSettings()
    max_waiting: Annotated[int, msgspec.Meta(ge=0)] | None = None
    timeout_seconds: Seconds = 60.0
    load_timeout_seconds: Seconds = 600.0
    isolate: bool = False
    memory_limit_bytes: Annotated[int, msgspec.Meta(ge=256 * 1024 * 1024)] | None = None


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one model as it lies on disk.

    Attributes:
        name: the name it is served under.
        version: its version.
        folder: where its files lie.
        file: the model file when one was named, by the user or by `uri`; the runtime looks for it when None.
        settings: what its owner declared.
        root: the model's own folder, where `folder` is one of its versions'.
        allow_code: whether the server's operator lets models run Python code of their own.
        require_manifest: whether the operator wants every file of it listed with its digest.
        signing_key: the operator's file of public keys, one of which has to have signed that list.
        links: folders that the operator lets links in the model's own lead to.
        fault: why it cannot be served, where that was found out before its files were opened.
    """

    name: str
    version: str
    folder: Path
    file: Path | None = None
    settings: ModelSettings = ModelSettings()
    root: Path | None = None
    allow_code: bool = False
    require_manifest: bool = False
    signing_key: Path | None = None
    links: tuple[Path, ...] = ()
    fault: str | None = None


def read_settings(folder: Path) -> ModelSettings:
    """The settings in `folder`, or the defaults where it has no settings file.

    Raises:
        ModelError: naming the file and the field that is not understood.
    """
    path = folder / SETTINGS_FILE
    try:
        return read_json_file(path, ModelSettings) if path.is_file() else ModelSettings()
    except ModelError as error:
        raise ModelError(f"{error}{_known(str(error).removeprefix(f'{path}: '))}") from None


def _known(fault: str) -> str:
    """What may stand where something unknown does."""
    if fault.startswith("Object contains unknown field"):
        return f"; known are {', '.join(ModelSettings.__struct_fields__)}"
    return f"; known are {', '.join(TaskType)}" if fault.startswith("task_type: Invalid enum value") else ""


def read_json_file(path: Path, kind: type[T]) -> T:
    """A JSON file that belongs to a model, read as `kind`.

    Raises:
        ModelError: naming the file, and the field that is not understood.
    """
    try:
        return msgspec.json.decode(read_bounded(path), type=kind)
    except msgspec.ValidationError as error:
        raise ModelError(f"{path}: {explained(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None


def read_bounded(path: Path, most: int = LARGEST_JSON) -> bytes:
    """The content of a model's file, which is a regular one of no more than `most` bytes.

    Raises:
        ModelError: for more bytes, and for what is no file: reading a pipe or a device might never end.
        OSError: when it cannot be read.
    """
    # Opening a pipe would wait for whoever writes into it; what was opened is what is looked at.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123  a descriptor
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{path} is not a file")
        if status.st_size > most:
            raise ModelError(f"{path} has {status.st_size:,} bytes, more than {most:,}")
        return file.read(most)
