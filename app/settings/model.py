"""Settings of one model: ``model-settings.json`` beside its files, every field optional."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from tasks.exchange.parameters import explained
from tasks.task import TaskType

__all__ = (
    "SETTINGS_FILE",
    "ModelError",
    "ModelSettings",
    "ModelSource",
    "PreprocessingSettings",
    "read_json_file",
    "read_settings",
)

T = TypeVar("T")

SETTINGS_FILE = "model-settings.json"

Divisor = Annotated[float, msgspec.Meta(gt=0)]
Side = Annotated[int, msgspec.Meta(ge=1, le=16384)]


class ModelError(Exception):
    """A model that cannot be served, with a sentence for its owner. Never a request's fault."""


class PreprocessingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How pixels become the model's input. What is absent is read from the model's own files, or guessed and said so.

    Attributes:
        size: [height, width] of the model's input in pixels.
        resize: `letterbox` keeps the aspect ratio and pads, `stretch` does not keep it, `crop` resizes the shorter side
            and cuts out the centre.
        fill: the grey, 0..255, that letterbox pads with.
        scale: pixels (0..255) are multiplied by this first.
        mean: then this is subtracted, a number for each of R, G, B.
        std: then divided by this, a number for each of R, G, B.
        channel_order: the order of the channels that the model was trained with.
    """

    size: tuple[Side, Side] | None = None
    resize: Literal["letterbox", "stretch", "crop"] | None = None
    fill: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    scale: float | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[Divisor, Divisor, Divisor] | None = None
    channel_order: Literal["RGB", "BGR"] | None = None


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the owner of a model declares about it. A name that is not listed here is refused, because it is a typo.

    Attributes:
        name: the model's name; its folder's name when absent.
        versions: of a folder with versions in it, which ones are served: "all", "latest", or a list of them.
        version: its version; the version folder's name, or "1", when absent.
        task_type: what it does.
        runtime: the name of the runtime that loads it.
        uri: the model file, relative to the settings file.
        layout: the name of the output layout, for a graph whose shapes do not tell.
        labels: class names by class number.
        chariot_id: the id that Chariot puts into its path after ``m-``; the name in lower case when absent.
        default: whether the bare ``/infer`` path means this model.
        preprocessing: how pixels become its input.
        parameters: defaults of request parameters, such as score_threshold.
    """

    name: str | None = None
    version: str | None = None
    versions: Literal["all", "latest"] | list[str] = "all"
    task_type: TaskType | None = None
    runtime: str | None = None
    uri: str | None = None
    layout: str | None = None
    labels: tuple[str, ...] | None = None
    chariot_id: str | None = None
    default: bool = False
    preprocessing: PreprocessingSettings = PreprocessingSettings()
    parameters: Mapping[str, object] = {}


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one model as it lies on disk.

    Attributes:
        name: the name it is served under.
        version: its version.
        folder: where its files lie.
        file: the model file when one was named, by the user or by `uri`; the runtime looks for it when None.
        settings: what its owner declared.
    """

    name: str
    version: str
    folder: Path
    file: Path | None = None
    settings: ModelSettings = ModelSettings()


def read_settings(folder: Path) -> ModelSettings:
    """The settings in `folder`, or the defaults where it has no settings file.

    Raises:
        ModelError: naming the file and the field that is not understood.
    """
    path = folder / SETTINGS_FILE
    return read_json_file(path, ModelSettings) if path.is_file() else ModelSettings()


def read_json_file(path: Path, kind: type[T]) -> T:
    """A JSON file that belongs to a model, read as `kind`.

    Raises:
        ModelError: naming the file, and the field that is not understood.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.ValidationError as error:
        raise ModelError(f"{path}: {explained(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
