"""Metadata of a model, with the origin of each fact."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from tasks.inference.tensor import TensorSpec
from tasks.task import InputKind, TaskType


class Origin(StrEnum):
    """The source of a fact about a model."""

    DECLARED = "model-settings.json"
    MODEL_FILE = "model file"
    CONFIG = "config.json"
    EXPORT_FILE = "file of the exporter"
    LABEL_FILE = "label file"
    PREPROCESSOR = "preprocessor_config.json"
    TOKENIZER = "tokenizer files"
    SHAPES = "input and output shapes"
    CONVENTION = "convention of the layout"
    CLASS = "Python class"
    MACHINE = "this machine"
    GUESSED = "guessed"


class Fact(msgspec.Struct, frozen=True):
    """One fact about a model, for people to read."""

    topic: str
    value: str
    origin: Origin


class ModelMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of a model, before or after it is loaded.

    Attributes:
        task_type: its task type.
        platform: the runtime's name for the model's format, such as ``onnx``.
        layout: the name of its output layout.
        labels: class names by class number; empty for tasks without classes.
        inputs: input tensors of the model's graph.
        outputs: output tensors of the model's graph.
        facts: every detected or configured property, with its origin, the most important first.
        open_vocabulary: whether each request names the classes, as `candidate_labels`.
        properties: the ``metadata_props`` of an ONNX file, as its exporter wrote them.
        takes_images: whether a model of the task TENSOR takes encoded images instead of tensors.
    """

    task_type: TaskType
    platform: str
    layout: str
    labels: Sequence[str]
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    facts: Sequence[Fact]
    open_vocabulary: bool = False
    properties: Mapping[str, str] = {}
    takes_images: bool = False

    @property
    def takes(self) -> InputKind:
        """Return what the model takes."""
        return "image" if self.takes_images else self.task_type.takes
