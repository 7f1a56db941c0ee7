"""A vision-language model that its first request loads."""

import threading
from collections.abc import Callable, Generator, Sequence

from app.core.engine.error_text import redact_paths
from app.core.engine.models.servable import load_model
from app.core.engine.scheduling.thread_pool import release_worker
from app.core.settings.model import ModelError, ModelSource
from app.plugins.transformers.text.generation import PromptedImageModel
from tasks.image_text_to_text import Answers, PromptedImage
from tasks.inference.error import ErrorKind, InferenceError
from tasks.task import TextChunk


class DeferredModel:
    """Loads the model for the first request; requests that arrive meanwhile wait. A failure is final.

    Args:
        source: its files and settings.
        load: loads it, and raises ModelError if it cannot be loaded.

    Attributes:
        unavailable_reason: why it could not be loaded, "" as long as it is not known to fail.
    """

    def __init__(self, source: ModelSource, load: Callable[[ModelSource], PromptedImageModel]) -> None:
        self.unavailable_reason = ""
        self._source, self._load = source, load
        self._model: PromptedImageModel | None = None
        self._loading = threading.Lock()

    def __call__(self, inputs: Sequence[PromptedImage], /) -> Sequence[Answers]:
        return self._loaded()(inputs)

    def stream(self, inputs: Sequence[PromptedImage], /) -> Generator[TextChunk]:
        return self._loaded().stream(inputs)

    def _loaded(self) -> PromptedImageModel:
        """Return the model. Raise MODEL_NOT_READY if it cannot be loaded."""
        if self._model is None:
            # Others use the worker meanwhile: loading takes seconds.
            with release_worker(), self._loading:
                if self._model is None and not self.unavailable_reason:
                    try:
                        self._model = load_model(self._source, self._load)
                    except ModelError as error:
                        self.unavailable_reason = str(error)
        if self._model is None:
            reason = redact_paths(self.unavailable_reason, self._source)
            raise InferenceError(ErrorKind.MODEL_NOT_READY, f"Model {self._source.name!r} is not ready: {reason}")
        return self._model
