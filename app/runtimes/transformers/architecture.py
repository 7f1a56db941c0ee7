"""Determine a model's task and labels from its config.json and transformers' tables of architectures."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from app.engine.description import Fact, ModelDescription, Origin
from app.runtimes.transformers.files import check_files
from app.runtimes.transformers.framework import first_line, framework
from app.settings.model import ModelError, ModelSource, PreprocessingSettings
from tasks.task import TaskType

__all__ = ("Kind", "Understood", "understand")

Kind = Literal[
    "image-classification",
    "zero-shot-image-classification",
    "object-detection",
    "zero-shot-object-detection",
    "semantic-segmentation",
    "mask-segmentation",
    "image-text-to-text",
    "text-classification",
    "token-classification",
    "text-generation",
]
"""Which module of this package runs a model. The names are those of Hugging Face pipelines where one exists."""


class _Family(msgspec.Struct, frozen=True):
    """Architectures that are loaded and run in the same way.

    Attributes:
        kind: the module that runs them.
        task_type: their task.
        table: name of transformers' table from model type to class name.
        auto: suffix of transformers' auto class that loads them.
    """

    kind: Kind
    task_type: TaskType
    table: str
    auto: str


_FAMILIES = (
    _Family("image-classification", TaskType.IMAGE_CLASSIFICATION, "IMAGE_CLASSIFICATION", "ImageClassification"),
    _Family("object-detection", TaskType.OBJECT_DETECTION, "OBJECT_DETECTION", "ObjectDetection"),
    _Family("semantic-segmentation", TaskType.IMAGE_SEGMENTATION, "SEMANTIC_SEGMENTATION", "SemanticSegmentation"),
    _Family("mask-segmentation", TaskType.IMAGE_SEGMENTATION, "UNIVERSAL_SEGMENTATION", "UniversalSegmentation"),
    _Family("mask-segmentation", TaskType.IMAGE_SEGMENTATION, "INSTANCE_SEGMENTATION", "InstanceSegmentation"),
    _Family(
        "zero-shot-image-classification",
        TaskType.IMAGE_CLASSIFICATION,
        "ZERO_SHOT_IMAGE_CLASSIFICATION",
        "ZeroShotImageClassification",
    ),
    _Family(
        "zero-shot-object-detection",
        TaskType.OBJECT_DETECTION,
        "ZERO_SHOT_OBJECT_DETECTION",
        "ZeroShotObjectDetection",
    ),
    _Family("image-text-to-text", TaskType.IMAGE_TEXT_TO_TEXT, "IMAGE_TEXT_TO_TEXT", "ImageTextToText"),
    _Family("image-text-to-text", TaskType.IMAGE_TEXT_TO_TEXT, "VISUAL_QUESTION_ANSWERING", "VisualQuestionAnswering"),
    _Family("text-classification", TaskType.TEXT_CLASSIFICATION, "SEQUENCE_CLASSIFICATION", "SequenceClassification"),
    _Family("token-classification", TaskType.TOKEN_CLASSIFICATION, "TOKEN_CLASSIFICATION", "TokenClassification"),
    _Family("text-generation", TaskType.TEXT_GENERATION, "CAUSAL_LM", "CausalLM"),
    _Family("text-generation", TaskType.TEXT_GENERATION, "SEQ_TO_SEQ_CAUSAL_LM", "Seq2SeqLM"),
)
"""If several tables contain a class, the first one applies."""

_LABELLED: frozenset[Kind] = frozenset(
    {
        "image-classification",
        "object-detection",
        "semantic-segmentation",
        "mask-segmentation",
        "text-classification",
        "token-classification",
    }
)

_SUBTASKS = ("panoptic", "instance", "semantic")


class Understood(msgspec.Struct, frozen=True, kw_only=True):
    """A model as its config.json describes it, before its weights are read.

    Attributes:
        source: the model.
        kind: which module runs it.
        auto: name of transformers' class that loads it.
        config: transformers' configuration.
        labels: class names by class number, empty for tasks without classes.
        layout: how a segmenter's outputs are read; the model type for other models.
        description: metadata of the model.
    """

    source: ModelSource
    kind: Kind
    auto: str
    config: Any
    labels: tuple[str, ...]
    layout: str
    description: ModelDescription


def understand(source: ModelSource) -> Understood:
    """Read a model's configuration and determine its task.

    Raises:
        ModelError: if the files are unsafe or incomplete, or the model is not supported.
    """
    check_files(source)
    settings = source.settings
    if settings.preprocessing != PreprocessingSettings():
        raise ModelError(f"{source.folder}: preprocessing is declared, but this model has its own processor")
    config = _read_config(source)
    names = tuple(config.architectures or ())
    family = _family(source, config, names)
    facts = [
        Fact("task type", family.task_type, Origin.DECLARED if settings.task_type else Origin.CONFIG),
        Fact("architecture", f"{', '.join(names) or 'not named'} ({config.model_type})", Origin.CONFIG),
    ]
    labels = _labels(source, config, facts) if family.kind in _LABELLED else ()
    layout = _layout(source, family.kind, config, facts)
    description = ModelDescription(
        task_type=family.task_type,
        platform="transformers",
        layout=layout,
        labels=labels,
        inputs=(),
        outputs=(),
        facts=facts,
    )
    return Understood(
        source=source,
        kind=family.kind,
        auto=f"AutoModelFor{family.auto}",
        config=config,
        labels=labels,
        layout=layout,
        description=description,
    )


def _read_config(source: ModelSource) -> Any:
    try:
        return framework().transformers.AutoConfig.from_pretrained(
            source.folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        raise ModelError(f"{source.folder / 'config.json'} cannot be parsed: {first_line(error)}") from error


def _family(source: ModelSource, config: Any, names: Sequence[str]) -> _Family:
    path, wanted = source.folder / "config.json", source.settings.task_type
    for family in _FAMILIES:
        listed = _table(family.table)
        classes = _flat(listed.values()) if names else ()
        found = any(name in classes for name in names) if names else config.model_type in listed and wanted is not None
        if found and wanted in (None, family.task_type):
            return family
    shown = ", ".join(names) or config.model_type or "no architecture"
    if wanted is not None:
        raise ModelError(f"{path} names {shown}, which transformers does not list for {wanted}")
    if not names:
        raise ModelError(f'{path} names no architectures; declare "task_type" in model-settings.json')
    raise ModelError(f"{path} names {shown}, and no supported task has this architecture")


def _table(name: str) -> Mapping[str, str | Sequence[str]]:
    module: Any = importlib.import_module("transformers.models.auto.modeling_auto")
    return getattr(module, f"MODEL_FOR_{name}_MAPPING_NAMES")


def _flat(names: Any) -> frozenset[str]:
    return frozenset(name for entry in names for name in ((entry,) if isinstance(entry, str) else entry))


def _labels(source: ModelSource, config: Any, facts: list[Fact]) -> tuple[str, ...]:
    own: Mapping[int, str] = config.id2label or {}
    count = len(own)
    if sorted(own) != list(range(count)):
        raise ModelError(f"{source.folder / 'config.json'}: id2label: Expected the numbers 0 to {count - 1}, each once")
    declared = source.settings.labels
    if declared is not None and len(declared) != count:
        raise ModelError(
            f"{source.folder}: the model has {count} classes, but model-settings.json declares {len(declared)} labels"
        )
    labels = declared or tuple(own[number] for number in range(count))
    missing = declared is None and all(label == f"LABEL_{number}" for number, label in enumerate(labels))
    shown = ", ".join(labels[:5]) + (", ..." if count > 5 else "")
    origin = Origin.DECLARED if declared else Origin.GUESSED if missing else Origin.CONFIG
    facts.append(Fact("labels", f"{'none found, ' if missing else ''}{count}: {shown}", origin))
    return labels


def _layout(source: ModelSource, kind: Kind, config: Any, facts: list[Fact]) -> str:
    declared = source.settings.layout
    match kind:
        case "semantic-segmentation":
            known: Sequence[str] = ("semantic",)
        case "mask-segmentation":
            known = _SUBTASKS
        case _:
            known = ()
    if declared is not None and declared not in known:
        expected = f"Expected one of {', '.join(known)}" if known else "Expected none for this model"
        raise ModelError(f"{source.folder}: layout: {expected}, got {declared!r}")
    if not known:
        return str(config.model_type)
    origin = Origin.DECLARED if declared else Origin.CONFIG if len(known) == 1 else Origin.GUESSED
    facts.append(Fact("layout", declared or known[0], origin))
    return declared or known[0]
