"""The names of a model's classes."""

from collections.abc import Sequence

from app.engine.description import Origin
from app.runtimes.onnxruntime.evidence import Evidence, Facts
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("Labels", "decide_labels", "listed_labels")


class Labels:
    """Class names by class number.

    Args:
        names: the names known; without any, each class is called by its number.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def of(self, class_ids: Sequence[int]) -> list[str]:
        """The name of each class.

        Raises:
            InferenceError: MODEL_FAILED for a number that has no name.
        """
        if not self.names:
            return [str(each) for each in class_ids]
        for each in class_ids:
            if not 0 <= each < len(self.names):
                message = f"The model answered class number {each}, but has only {len(self.names)} labels"
                raise InferenceError(ErrorKind.MODEL_FAILED, message)
        return [self.names[each] for each in class_ids]


def listed_labels(evidence: Evidence) -> tuple[tuple[str, ...], Origin] | None:
    """The labels that the model's files list, and which file does."""
    config = evidence.neighbours.config
    candidates = (
        (evidence.settings.labels, Origin.DECLARED),
        (evidence.metadata.names, Origin.MODEL_FILE),
        (config.labels if config else None, Origin.CONFIG),
    )
    return next(((labels, origin) for labels, origin in candidates if labels), None)


def decide_labels(
    listed: tuple[tuple[str, ...], Origin] | None, classes: int | None, evidence: Evidence, facts: Facts
) -> Labels:
    """The listed labels, or numbers.

    Args:
        listed: what `listed_labels` found.
        classes: how many classes the outputs hold, None when that is not in their shapes.
        evidence: the model's files.
        facts: where the decision is recorded.

    Raises:
        ModelError: when there are more or fewer labels than classes.
    """
    if listed is None:
        names = tuple(str(number) for number in range(classes or 0))
        facts.note("labels", f"none found, classes are called by their numbers{_counted(classes)}", Origin.GUESSED)
        return Labels(names)
    names, origin = listed
    if classes is not None and len(names) != classes:
        raise evidence.error(
            f"its output holds {classes} classes, but {origin} gives {len(names)} labels; declare "
            f'"labels" in model-settings.json, one for each class'
        )
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    facts.note("labels", f"{len(names)}: {shown}", origin)
    return Labels(names)


def _counted(classes: int | None) -> str:
    return "" if classes is None else f", 0..{classes - 1}"
