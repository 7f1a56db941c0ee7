"""What is known of a model, and how it came to be known."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from tasks.exchange.tensor import TensorSpec
from tasks.task import TaskType

__all__ = ("Fact", "ModelDescription", "Origin")


class Origin(StrEnum):
    """Where a fact about a model was found."""

    DECLARED = "model-settings.json"
    MODEL_FILE = "model file"
    CONFIG = "config.json"
    PREPROCESSOR = "preprocessor_config.json"
    TOKENIZER = "tokenizer files"
    SHAPES = "input and output shapes"
    CONVENTION = "convention of the layout"
    CLASS = "Python class"
    MACHINE = "this machine"
    GUESSED = "guessed"


class Fact(msgspec.Struct, frozen=True):
    """One thing understood about a model, for people to read."""

    topic: str
    value: str
    origin: Origin


class ModelDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A model as understood, before or after it is loaded.

    Attributes:
        task_type: what it does.
        platform: the runtime's name for the model's format, such as ``onnx``.
        layout: the name of its output layout.
        labels: class names by class number; empty for tasks without classes.
        inputs: tensors of the model's own graph.
        outputs: tensors of the model's own graph.
        facts: everything that was decided, with its origin, in the order in which a reader wants it.
    """

    task_type: TaskType
    platform: str
    layout: str
    labels: Sequence[str]
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    facts: Sequence[Fact]
