"""Determine the class names of a model."""

from collections.abc import Sequence

from app.engine.models.model_metadata import Origin
from app.runtimes.onnxruntime.files.model_files import Facts, ModelFiles
from app.runtimes.onnxruntime.layouts.layout import Match, TextDecoder
from tasks.inference.error import ErrorKind, InferenceError
from tasks.task import TaskType


class Labels:
    """Class names by class number.

    Args:
        names: the names. If there are none, the number of a class is its name.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def of(self, class_ids: Sequence[int]) -> list[str]:
        """Return the name of each class.

        Raises:
            InferenceError: MODEL_FAILED for a number without a name.
        """
        if not self.names:
            return [str(class_id) for class_id in class_ids]
        for class_id in class_ids:
            if not 0 <= class_id < len(self.names):
                message = f"The model returned class number {class_id}, but has only {len(self.names)} labels"
                raise InferenceError(ErrorKind.MODEL_FAILED, message)
        return list(map(self.names.__getitem__, class_ids))


def declared_labels(model_files: ModelFiles) -> tuple[tuple[str, ...], Origin] | None:
    """Return the labels that the settings or the model's files list, with their origin; None if none do."""
    config_labels = model_files.config.labels if model_files.config else None
    # The labels that transformers writes if it knows none.
    is_named = config_labels != tuple(f"LABEL_{number}" for number in range(len(config_labels or ())))
    candidates = (
        (model_files.declared_labels, Origin.DECLARED),
        (model_files.metadata.names, Origin.MODEL_FILE),
        (config_labels if is_named else None, Origin.CONFIG),
        (model_files.file_labels, Origin.LABEL_FILE),
        (config_labels, Origin.CONFIG),
    )
    return next(((labels, origin) for labels, origin in candidates if labels), None)


def decide_labels(
    match: Match, declared: tuple[tuple[str, ...], Origin] | None, model_files: ModelFiles, facts: Facts
) -> Labels:
    """Return the listed labels, or else those of the layout, or else class numbers.

    Args:
        match: the layout.
        declared: the result of `declared_labels`.
        model_files: the model's files.
        facts: records the decision.

    Raises:
        ModelError: if the numbers of labels and classes differ.
    """
    if isinstance(match.decoder, TextDecoder) or (declared is None and match.task_type is TaskType.TENSOR):
        return Labels(())
    classes = match.classes
    # PaddleOCR's exporters also list the classes of a classifier as characters.
    characters = tuple((model_files.metadata.characters or "").splitlines())
    if declared is None and match.names:
        declared = match.names, Origin.CONVENTION
    elif declared is None and characters and len(characters) == classes:
        declared = characters, Origin.MODEL_FILE
    if declared is None:
        numbers = "" if classes is None else f", 0..{classes - 1}"
        facts.note("labels", f"none found, class numbers are used{numbers}", Origin.GUESSED)
        return Labels([str(number) for number in range(classes or 0)])
    names, origin = declared
    file_name = model_files.label_file if origin in (Origin.DECLARED, Origin.LABEL_FILE) else ""
    if classes is not None and len(names) != classes:
        raise model_files.error(
            f"its output has {classes} classes, but {file_name or origin} lists {len(names)} labels; declare "
            f'"labels" in model-settings.json, one for each class'
        )
    facts.note("labels", format_labels(names) + (f" ({file_name})" if file_name else ""), origin)
    return Labels(names)


def format_labels(names: Sequence[str]) -> str:
    """Return the number of labels, and the first five."""
    return f"{len(names)}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
