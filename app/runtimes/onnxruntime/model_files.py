"""Collect the information in a model's files, and record the decisions based on it."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from app.engine.model_metadata import Fact, Origin
from app.runtimes.onnxruntime.hugging_face_files import HuggingFaceFiles, read_hugging_face_files
from app.runtimes.onnxruntime.metadata import ULTRALYTICS_TASKS, ExportMetadata, read_metadata
from app.runtimes.onnxruntime.session import Session
from app.settings.model import ModelError, ModelSettings, ModelSource
from tasks.task import TaskType

__all__ = ("Facts", "ModelFiles", "read_model_files")

T = TypeVar("T")


class ModelFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about a model before its graph runs.

    Attributes:
        file: the graph.
        settings: the model's settings.
        metadata: metadata in the graph's file.
        hugging_face: Hugging Face files in the folder.
    """

    file: Path
    settings: ModelSettings
    metadata: ExportMetadata
    hugging_face: HuggingFaceFiles

    @property
    def ultralytics_task(self) -> TaskType | None:
        """Return the task in Ultralytics' metadata; None for files of other exporters."""
        return ULTRALYTICS_TASKS.get(self.metadata.task or "")

    def error(self, reason: str) -> ModelError:
        """Return a `ModelError` whose message starts with the file."""
        return ModelError(f"{self.file}: {reason}")


class Facts:
    """Recorded decisions, in order."""

    def __init__(self) -> None:
        self.recorded: list[Fact] = []

    def note(self, topic: str, value: str, origin: Origin) -> None:
        """Record one decision."""
        self.recorded.append(Fact(topic, value, origin))

    def choose(
        self,
        topic: str,
        *candidates: tuple[T | None, Origin],
        fallback: tuple[T, Origin],
        to_text: Callable[[T], str] = str,
    ) -> T:
        """Return and record the first candidate that is not None, or else `fallback`."""
        value, origin = next(((value, origin) for value, origin in candidates if value is not None), fallback)
        self.note(topic, to_text(value), origin)
        return value


def read_model_files(source: ModelSource, session: Session) -> ModelFiles:
    """Read the settings, the metadata of the graph and the Hugging Face files.

    Raises:
        ModelError: if one of them cannot be read.
    """
    return ModelFiles(
        file=session.file,
        settings=source.settings,
        metadata=read_metadata(session.file, session.metadata),
        hugging_face=read_hugging_face_files(source, session.file),
    )
