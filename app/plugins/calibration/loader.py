"""Serve probabilities instead of scores, for models with the setting ``"scores": "calibrated"``."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from app.core.engine.models.servable import HealthReporting, Servable
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource
from app.plugins.calibration.calibration import Calibration, read_calibration
from app.plugins.calibration.settings import CalibrationSettings
from metadata.model import ModelMetadata
from tasks.task import Model, TaskType


class CalibratedModel:
    """A model whose scores are probabilities. All other attributes are those of the model itself.

    The model gets a score threshold at which it returns all that the request's threshold may keep.
    """

    def __init__(self, model: Model[Any, Any], calibration: Calibration) -> None:
        self._model = model
        self._calibration = calibration

    def __call__(self, inputs: Sequence[Any], /) -> Sequence[Any]:
        predictions = self._model([self._with_raw_threshold(item) for item in inputs])
        return [self._calibrated(prediction) for prediction in predictions]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    @property
    def unavailable_reason(self) -> str:
        """Return why the model cannot answer now, empty if it can."""
        return self._model.unavailable_reason if isinstance(self._model, HealthReporting) else ""

    def _with_raw_threshold(self, item: Any) -> Any:
        threshold = self._calibration.raw_threshold(item.parameters.score_threshold)
        parameters = msgspec.structs.replace(item.parameters, score_threshold=threshold)
        return msgspec.structs.replace(item, parameters=parameters)

    def _calibrated(self, prediction: Any) -> Any:
        probabilities = self._calibration.probabilities(prediction.labels, prediction.scores)
        return msgspec.structs.replace(prediction, scores=probabilities.astype(prediction.scores.dtype))


class CalibratingLoader:
    """Wraps models with calibrated scores."""

    elsewhere = False

    def accepts(self, source: ModelSource, /) -> bool:
        """Return whether the model's settings ask for calibrated scores."""
        return source.settings.of(CalibrationSettings).scores == "calibrated"

    def inspect(self, source: ModelSource, inspect: Callable[[ModelSource], ModelMetadata], /) -> ModelMetadata:
        """Describe the model, which calibration does not change."""
        return inspect(source)

    def load(self, source: ModelSource, load: Callable[[ModelSource], Servable], /) -> Servable:
        """Load the model and its calibration.

        Raises:
            ModelError: when either cannot be used, or the task has no scores.
        """
        calibration, loaded = read_calibration(source), load(source)
        task_type = TaskType(loaded.description.task_type)
        if task_type.takes != "image" or task_type.returns not in ("classes", "objects"):
            raise ModelError(f'{source.folder / SETTINGS_FILE}: "scores": {task_type} has no scores to calibrate')
        model = CalibratedModel(loaded.model, calibration)
        servable = Servable(loaded.task, model, loaded.description, loaded.defaults, loaded.downscale)
        servable.loaded_bytes = loaded.loaded_bytes
        return servable


LOADERS = (CalibratingLoader(),)
