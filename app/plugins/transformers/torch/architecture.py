"""Determine a model's task and labels from its config.json and transformers' tables of architectures."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.core.runtimes.label_files import declared_labels, format_labels
from app.core.settings.model import ModelError, ModelSource, PreprocessingSettings, read_json_file
from app.plugins.transformers.grounding.forms import Form, form_of
from app.plugins.transformers.hugging_face.files import removed_task
from app.plugins.transformers.text.library import first_line, transformers
from app.plugins.transformers.torch.files import check_files
from app.plugins.transformers.torch.framework import import_timm, load_torch
from metadata.model import Fact, ModelMetadata, Origin
from tasks.task import TaskType


class _Family(msgspec.Struct, frozen=True):
    """Architectures that are loaded and run in the same way.

    Attributes:
        kind: which head runs them. The names come from Hugging Face pipelines where one exists.
        table: name of transformers' table from model type to class name.
        auto: suffix of transformers' auto class that loads them.
    """

    kind: str
    task_type: TaskType
    table: str
    auto: str


_FAMILIES = (
    _Family("image-classification", TaskType.IMAGE_CLASSIFICATION, "IMAGE_CLASSIFICATION", "ImageClassification"),
    _Family("object-detection", TaskType.OBJECT_DETECTION, "OBJECT_DETECTION", "ObjectDetection"),
    _Family("semantic-segmentation", TaskType.IMAGE_SEGMENTATION, "SEMANTIC_SEGMENTATION", "SemanticSegmentation"),
    _Family("mask-segmentation", TaskType.IMAGE_SEGMENTATION, "UNIVERSAL_SEGMENTATION", "UniversalSegmentation"),
    _Family("mask-segmentation", TaskType.IMAGE_SEGMENTATION, "INSTANCE_SEGMENTATION", "InstanceSegmentation"),
    _Family("zero-shot-image-classification", TaskType.IMAGE_CLASSIFICATION, "ZERO_SHOT_IMAGE_CLASSIFICATION",
            "ZeroShotImageClassification"),
    _Family("zero-shot-object-detection", TaskType.OBJECT_DETECTION, "ZERO_SHOT_OBJECT_DETECTION",
            "ZeroShotObjectDetection"),
    _Family("image-text-to-text", TaskType.IMAGE_TEXT_TO_TEXT, "IMAGE_TEXT_TO_TEXT", "ImageTextToText"),
    _Family("image-text-to-text", TaskType.IMAGE_TEXT_TO_TEXT, "VISUAL_QUESTION_ANSWERING", "VisualQuestionAnswering"),
    _Family("image-text-to-text", TaskType.OBJECT_DETECTION, "IMAGE_TEXT_TO_TEXT", "ImageTextToText"),
    _Family("image-text-to-text", TaskType.IMAGE_SEGMENTATION, "IMAGE_TEXT_TO_TEXT", "ImageTextToText"),
    _Family("text-generation", TaskType.TEXT_GENERATION, "CAUSAL_LM", "CausalLM"),
    _Family("text-generation", TaskType.TEXT_GENERATION, "SEQ_TO_SEQ_CAUSAL_LM", "Seq2SeqLM"),
)  # fmt: skip
"""If several tables contain a class, the first one applies."""

_UNLABELLED = ("zero-shot", "image-text-to-text", "text-generation")
"""The kinds without labels of their own begin with these."""

_WAY_ON = "a Python class can run it with its own library: see docs/python_models.md#transformers"

_TIMM = "timm_wrapper"
"""Model type of transformers' wrapper, which reads folders of timm."""

_SUBTASKS = ("panoptic", "instance", "semantic")


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A model as its config.json describes it, before its weights are read.

    Attributes:
        kind: which head runs it.
        auto: name of transformers' class that loads it.
        config: transformers' configuration.
        description: metadata of the model. Its layout is how a segmenter's outputs are read, and else the model type.
        grounding: how a vision-language model prints places in an image; None for others.
    """

    source: ModelSource
    kind: str
    auto: str
    config: Any
    description: ModelMetadata
    grounding: Form | None = None


def read_model_spec(source: ModelSource) -> ModelSpec:
    """Read a model's configuration and determine its task.

    Raise ModelError if the files are unsafe or incomplete, or the model is not supported.
    """
    check_files(source)
    settings = source.settings
    if settings.preprocessing != PreprocessingSettings():
        raise ModelError(f"{source.folder}: preprocessing is declared, but this model has its own processor")
    config = _read_config(source)
    names = tuple(config.architectures or ())
    family = _family(source, config, names)
    architecture = str(config.architecture) if config.model_type == _TIMM else ", ".join(names) or "not named"
    facts = [
        Fact("task type", str(family.task_type), Origin.DECLARED if settings.task_type else Origin.CONFIG),
        Fact("architecture", f"{architecture} ({config.model_type})", Origin.CONFIG),
    ]
    is_prompted = family.kind == "image-text-to-text"
    form = form_of(source, str(config.model_type), facts) if is_prompted else None
    description = ModelMetadata(
        task_type=family.task_type,
        platform="transformers",
        labels=() if family.kind.startswith(_UNLABELLED) else _labels(source, config, facts),
        layout=_layout(source, family.kind, config, facts),
        inputs=(),
        outputs=(),
        facts=facts,
        open_vocabulary=family.kind.startswith("zero-shot") or (is_prompted and family.task_type.returns == "objects"),
    )
    auto = f"AutoModelFor{family.auto}"
    return ModelSpec(source=source, kind=family.kind, auto=auto, config=config, description=description, grounding=form)


def _read_config(source: ModelSource) -> Any:
    load_torch()
    if "pretrained_cfg" in read_json_file(source.folder / "config.json", dict[str, object]):
        import_timm()
    try:
        config = transformers().AutoConfig.from_pretrained(
            source.folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        raise ModelError(f"{source.folder / 'config.json'} cannot be parsed: {first_line(error)}; {_WAY_ON}") from error
    if config.model_type == _TIMM:
        # timm repeats the number of classes here, and the wrapper passes it to the model itself.
        arguments: dict[str, Any] = config.model_args or {}
        config.model_args = {name: value for name, value in arguments.items() if name != "num_classes"}
        config.architectures = config.architectures or ["TimmWrapperForImageClassification"]
    return config


def _family(source: ModelSource, config: Any, names: Sequence[str]) -> _Family:
    path, declared_task = source.folder / "config.json", source.settings.task_type
    tables: Any = importlib.import_module("transformers.models.auto.modeling_auto")
    for family in _FAMILIES:
        table: Mapping[str, str | Sequence[str]] = getattr(tables, f"MODEL_FOR_{family.table}_MAPPING_NAMES")
        if names:
            classes = {name for entry in table.values() for name in ((entry,) if isinstance(entry, str) else entry)}
            matches = not classes.isdisjoint(names)
        else:
            matches = config.model_type in table and declared_task is not None
        if matches and declared_task in (None, family.task_type):
            return family
    shown = ", ".join(names) or config.model_type or "no architecture"
    if declared_task is not None:
        raise ModelError(f"{path} names {shown}, which transformers does not list for {declared_task}")
    if not names:
        raise ModelError(f'{path} names no architectures; declare "task_type" in model-settings.json')
    reason = removed_task(names) or f"no supported task has this architecture; {_WAY_ON}"
    raise ModelError(f"{path} names {shown}, and {reason}")


def _labels(source: ModelSource, config: Any, facts: list[Fact]) -> tuple[str, ...]:
    id_to_label: Mapping[int, str] = config.id2label or {}
    count = len(id_to_label)
    if sorted(id_to_label) != list(range(count)):
        raise ModelError(f"{source.folder / 'config.json'}: id2label: Expected the numbers 0 to {count - 1}, each once")
    declared = declared_labels(source)
    if declared is not None and len(declared) != count:
        raise ModelError(
            f"{source.folder}: the model has {count} classes, but model-settings.json declares {len(declared)} labels"
        )
    labels = declared or tuple(id_to_label[number] for number in range(count))
    missing = declared is None and all(label == f"LABEL_{number}" for number, label in enumerate(labels))
    origin = Origin.DECLARED if declared else Origin.GUESSED if missing else Origin.CONFIG
    facts.append(Fact("labels", f"{'none found, ' if missing else ''}{format_labels(labels)}", origin))
    return labels


def _layout(source: ModelSource, kind: str, config: Any, facts: list[Fact]) -> str:
    declared = source.settings.layout
    supported: Sequence[str] = {"semantic-segmentation": ("semantic",), "mask-segmentation": _SUBTASKS}.get(kind, ())
    if declared is not None and declared not in supported:
        expected = f"Expected one of {', '.join(supported)}" if supported else "Expected none for this model"
        raise ModelError(f"{source.folder}: layout: {expected}, got {declared!r}")
    if not supported:
        return str(config.model_type)
    origin = Origin.DECLARED if declared else Origin.CONFIG if len(supported) == 1 else Origin.GUESSED
    facts.append(Fact("layout", declared or supported[0], origin))
    return declared or supported[0]
