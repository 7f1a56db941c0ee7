"""A calibration: how the scores of one model become probabilities, its file, and the step that applies it."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.assembly.manifest import MANIFEST_FILE, SIGNATURE_FILE, checked_manifest
from app.core.engine.models.servable import Servable
from app.core.runtimes.folder import check_folder, is_single_file, iterate_files
from app.core.settings.files import READABLE_BY_ALL, replacing_file
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource, read_json_file
from app.plugins.calibration.fitting import MIN_PROBABILITY, Floats, log_odds, sigmoid, softmax
from app.plugins.calibration.settings import CalibrationSettings
from metadata.model import ModelMetadata
from tasks.task import TaskType

FILE_NAME = "calibration.json"
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_EDGE = 1e-6
"""Margin of a threshold for 32-bit scores: the threshold of the request is applied exactly later."""
_OTHER_FILES = frozenset({FILE_NAME, MANIFEST_FILE, SIGNATURE_FILE, "drift-baseline.npz"})
_OTHER_SETTINGS = frozenset(
    (
        *("batching", "chariot_id", "default", "instances", "isolate", "load_timeout_seconds", "max_waiting"),
        *("memory_limit_bytes", "name", "parameters", "scores", "shadow", "timeout_seconds"),
        *("version", "version_labels", "versions"),
    )
)
"""Settings that do not change the scores of a model."""


class PlattLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line over log odds: the probability is ``sigmoid(slope * log_odds(score) + intercept)``."""

    slope: _Positive = 1.0
    intercept: float = 0.0


class FittedOn(msgspec.Struct, frozen=True, kw_only=True):
    """What a calibration was fitted on: the fingerprint of a dataset, the number of images, and the time (ISO 8601)."""

    dataset: str
    images: int
    time: str


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """How the scores of a model become probabilities.

    Attributes:
        version: of this format.
        method: "temperature" for scores that add up to 1 in each image, "platt" for scores that stand alone.
        temperature: divides the logarithms of the scores.
        line: for classes that `classes` lacks.
        classes: lines of classes with enough examples.
        model_digest: `model_digest` of the model.
        fitted_on: for the reader of the file.
    """

    version: Literal[1] = 1
    method: Literal["temperature", "platt"]
    temperature: _Positive = 1.0
    line: PlattLine = PlattLine()
    classes: Mapping[str, PlattLine] = {}
    model_digest: str = ""
    fitted_on: FittedOn | None = None

    def probabilities(self, labels: Sequence[str], scores: NDArray[Any]) -> Floats:
        """Return the (N,) probabilities of the (N,) scores of one image. Scores that are not finite stay so."""
        scores = np.asarray(scores, np.float64)
        if not len(scores):
            return scores
        if self.method == "temperature":
            return softmax(np.log(np.clip(scores, MIN_PROBABILITY, 1)) / self.temperature)
        lines = [self.classes.get(label, self.line) for label in labels]
        slopes, intercepts = np.array([(line.slope, line.intercept) for line in lines]).T
        return sigmoid(slopes * log_odds(scores) + intercepts)

    def raw_threshold(self, threshold: float) -> float:
        """Return a score that every prediction with at least this probability has."""
        if self.method == "temperature" or threshold <= 0:
            return 0.0
        odds = float(log_odds(np.array(threshold)))
        lines = (self.line, *self.classes.values())
        lowest = min((odds - line.intercept) / line.slope for line in lines)
        return min(max(float(sigmoid(np.array(lowest))) - _EDGE, 0.0), 1.0)


def model_digest(source: ModelSource) -> str:
    """Return a SHA-256 over the files of a model, and over its settings that change scores.

    Raise ModelError for a file that a model may not have. Raise OSError when a file cannot be read.
    """
    total = hashlib.sha256()
    for name, path in _files(source):
        if path.name == SETTINGS_FILE:
            settings = read_json_file(path, dict[str, object])
            relevant = {key: settings[key] for key in sorted(settings.keys() - _OTHER_SETTINGS)}
            digest = hashlib.sha256(msgspec.json.encode(relevant)) if relevant else None
        else:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256")
        if digest is not None:
            total.update(f"{digest.hexdigest()}  {name}\n".encode())
    return total.hexdigest()


def _files(source: ModelSource) -> Sequence[tuple[str, Path]]:
    """Return the name and path of each file that may change scores; of a single graph, itself and its weights."""
    if is_single_file(source) and source.file is not None:
        graph = source.file.name
        paths = [path for path in sorted(source.folder.iterdir()) if path.is_file()]
        return [(path.name, path) for path in paths if path.name.startswith(graph) or path.name == SETTINGS_FILE]
    # A version is the same model when its folder is named instead of the folder of all versions.
    version = "" if source.root is None else f"{source.folder.name}/"
    return [
        (str(file.relative_path).removeprefix(version), file.path)
        for file in iterate_files(source)
        if file.relative_path.name not in _OTHER_FILES and file.relative_path.suffix.lower() != ".md"
    ]


def read_calibration(source: ModelSource) -> Calibration:
    """Read the calibration of a model. Raise ModelError when it is missing or unreadable, or belongs to other files."""
    path = source.folder / FILE_NAME
    way_on = "`charioteer evaluate DATASET --model MODEL --calibrate` fits it"
    if not path.is_file():
        raise ModelError(f'{source.folder}: "scores": "calibrated" needs {path}; {way_on}')
    check_folder(source)
    with checked_manifest(source):
        calibration = read_json_file(path, Calibration)
        try:
            digest = model_digest(source)
        except OSError as error:
            raise ModelError(f"{error.filename} cannot be read: {error.strerror}") from None
    if calibration.model_digest != digest:
        raise ModelError(f"{path} was fitted for other files or settings of this model; {way_on} again")
    return calibration


def write_calibration(source: ModelSource, calibration: Calibration) -> Path:
    """Write the calibration of a model in one step, and return its path. Raise OSError when it cannot be written."""
    path = source.folder / FILE_NAME
    with replacing_file(path, READABLE_BY_ALL) as file:
        file.write(msgspec.json.format(msgspec.json.encode(calibration), indent=2) + b"\n")
    return path


class CalibrationStep:
    """Makes probabilities of the scores of a model, which gets a floor that keeps all that a request may select."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration

    def candidates(self, item: Any, /) -> Any:
        """Return an item with the floor of raw scores for its floor of probabilities."""
        return msgspec.structs.replace(item, floor=self._calibration.raw_threshold(item.floor))

    def scores(self, prediction: Any, /) -> Any:
        """Return a prediction with probabilities as its scores."""
        probabilities = self._calibration.probabilities(prediction.labels, prediction.scores)
        return msgspec.structs.replace(prediction, scores=probabilities.astype(prediction.scores.dtype))


class CalibratingLoader:
    """Adds its step to models with calibrated scores."""

    elsewhere = False

    def accepts(self, source: ModelSource, /) -> bool:
        """Return whether the model's settings ask for calibrated scores."""
        return source.settings.of(CalibrationSettings).scores == "calibrated"

    def inspect(self, source: ModelSource, inspect: Callable[[ModelSource], ModelMetadata], /) -> ModelMetadata:
        """Describe the model, which calibration does not change."""
        return inspect(source)

    def load(self, source: ModelSource, load: Callable[[ModelSource], Servable], /) -> Servable:
        """Load the model and its calibration.

        Raise ModelError when either cannot be used, or the task has no scores.
        """
        calibration, servable = read_calibration(source), load(source)
        task_type = TaskType(servable.description.task_type)
        if task_type.takes != "image" or task_type.returns not in ("classes", "objects"):
            raise ModelError(f'{source.folder / SETTINGS_FILE}: "scores": {task_type} has no scores to calibrate')
        servable.score_step = CalibrationStep(calibration)
        return servable


LOADERS = (CalibratingLoader(),)
