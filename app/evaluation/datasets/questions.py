"""Read questions about images as JSON lines: ``{"image": "a.jpg", "question": "...", "answers": ["..."], ...}``."""

from collections.abc import Mapping
from pathlib import Path

from app.evaluation.dataset import Dataset, Faults, Item
from app.evaluation.datasets.files import json_lines, listed, scalars, size_of
from tasks.exchange.error import brief
from tasks.task import TaskType

__all__ = ("read_questions",)

_OWN = frozenset({"id", "image", "question", "answer", "answers"})


def read_questions(path: Path, faults: Faults, images: Path | None = None) -> Dataset:
    """Read one item a line. ``answer`` is one correct answer, ``answers`` are several; other values are metadata.

    Args:
        path: the file.
        faults: collects faults.
        images: the folder of images; by default the folder of the file.
    """
    items: list[Item] = []
    seen: set[str] = set()
    for place, line in json_lines(path, faults):
        number = place.rpartition(":")[2]
        image, question, answers = line.get("image"), line.get("question"), _answers(line)
        if not isinstance(image, str) or not image:
            faults.add(place, f"image: Expected a file name, got {brief(image)}")
        elif not isinstance(question, str) or not question.strip():
            faults.add(place, f"question: Expected a text, got {brief(question)}")
        elif answers is None:
            faults.add(place, "Expected answer, a text, or answers, a list of one or more texts")
        else:
            given = line.get("id")
            name = str(given) if isinstance(given, str | int) else f"{image}#{number}"
            if name in seen:
                faults.add(place, f"id: Expected each id once, got {brief(name)} again")
                continue
            seen.add(name)
            file = (images or path.parent) / image
            width, height = size_of(file, faults)
            if width:
                item = Item(
                    id=name,
                    image=file,
                    width=width,
                    height=height,
                    question=question,
                    answers=answers,
                    metadata=scalars(line, _OWN),
                )
                items.append(item)
    return Dataset(
        path=path, format="vqa", tasks=(TaskType.IMAGE_TEXT_TO_TEXT,), items=tuple(items), notes=faults.notes()
    )


def _answers(line: Mapping[str, object]) -> tuple[str, ...] | None:
    value = line.get("answers", line.get("answer"))
    if isinstance(value, str):
        return (value,)
    texts = [text for text in listed(value) or () if isinstance(text, str)]
    return tuple(texts) if texts and texts == value else None
