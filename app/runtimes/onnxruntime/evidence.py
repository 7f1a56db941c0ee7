"""What a model's files say about it, and the record of what was made of that."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from app.engine.description import Fact, Origin
from app.runtimes.onnxruntime.metadata import ULTRALYTICS_TASKS, ExportMetadata
from app.runtimes.onnxruntime.neighbours import Neighbours
from app.settings.model import ModelError, ModelSettings
from tasks.task import TaskType

__all__ = ("Evidence", "Facts")

T = TypeVar("T")


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a model before its graph is run."""

    file: Path
    settings: ModelSettings
    metadata: ExportMetadata
    neighbours: Neighbours

    @property
    def conventional_task(self) -> TaskType | None:
        """The task of a file that was exported after Ultralytics' conventions; None for any other file."""
        return ULTRALYTICS_TASKS.get(self.metadata.task or "")

    def error(self, reason: str) -> ModelError:
        """A `ModelError` that begins with the file."""
        return ModelError(f"{self.file}: {reason}")


class Facts:
    """Decisions in the order in which they were taken."""

    def __init__(self) -> None:
        self.recorded: list[Fact] = []

    def note(self, topic: str, value: str, origin: Origin) -> None:
        """Record one decision."""
        self.recorded.append(Fact(topic, value, origin))

    def choose(
        self, topic: str, *candidates: tuple[T | None, Origin], last: tuple[T, Origin], shown: Callable[[T], str] = str
    ) -> T:
        """The first candidate that is not None, else the last, recorded."""
        value, origin = next(((each, origin) for each, origin in candidates if each is not None), last)
        self.note(topic, shown(value), origin)
        return value
