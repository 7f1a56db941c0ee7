"""Read questions about images as JSON lines: ``{"image": "a.jpg", "question": "...", "answers": ["..."], ...}``."""

from collections.abc import Mapping
from pathlib import Path

from app.evaluation.dataset import Dataset, Item, LabelErrors
from app.evaluation.datasets.files import as_list, read_item, read_json_lines, scalar_values
from tasks.inference.error import quote_value
from tasks.task import TaskType

_RESERVED_KEYS = frozenset({"id", "image", "question", "answer", "answers"})


def read_questions(path: Path, errors: LabelErrors, images: Path | None = None) -> Dataset:
    """Read one item a line. ``answer`` is one correct answer, ``answers`` are several; other values are metadata.

    Args:
        path: the file.
        errors: collects errors.
        images: the folder of images; by default the folder of the file.
    """
    items: list[Item] = []
    seen: set[str] = set()
    for location, line in read_json_lines(path, errors):
        number = location.rpartition(":")[2]
        image, question, answers = line.get("image"), line.get("question"), _answers(line)
        if not isinstance(image, str) or not image:
            errors.add(location, f"image: Expected a file name, got {quote_value(image)}")
        elif not isinstance(question, str) or not question.strip():
            errors.add(location, f"question: Expected a text, got {quote_value(question)}")
        elif answers is None:
            errors.add(location, "Expected answer, a text, or answers, a list of one or more texts")
        else:
            item_id = line.get("id")
            name = str(item_id) if isinstance(item_id, str | int) else f"{image}#{number}"
            if name in seen:
                errors.add(location, f"id: Expected each id once, got {quote_value(name)} again")
                continue
            seen.add(name)
            file = (images or path.parent) / image
            metadata = scalar_values(line, _RESERVED_KEYS)
            if item := read_item(name, file, errors, question=question, answers=answers, metadata=metadata):
                items.append(item)
    return Dataset(
        path=path, format="vqa", tasks=(TaskType.IMAGE_TEXT_TO_TEXT,), items=tuple(items), notes=errors.notes()
    )


def _answers(line: Mapping[str, object]) -> tuple[str, ...] | None:
    value = line.get("answers", line.get("answer"))
    if isinstance(value, str):
        return (value,)
    texts = [text for text in as_list(value) or () if isinstance(text, str)]
    return tuple(texts) if texts and texts == value else None
