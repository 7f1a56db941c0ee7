"""Answers that were recorded while a server served, put to the images of a dataset that they were about."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from app.evaluation.collecting import Collected
from app.evaluation.dataset import Dataset, Item
from app.evaluation.extras import EvaluationError
from app.recording.inference import RecordedInference

__all__ = ("Matched", "match_recorded")

_Index = Mapping[str, Sequence[Item]]
_NAMES = frozenset({"file", "file_name", "filename", "image", "image_name", "name", "path"})
"""Keys of metadata under which senders tell an image's name."""


class Matched(msgspec.Struct, frozen=True, kw_only=True):
    """What of a dataset was found among recordings.

    Attributes:
        collected: the answers.
        model: who gave them, its version behind a colon.
        repeated: of so many items there were several recordings; the latest counts.
    """

    collected: Collected
    model: str
    repeated: int = 0


def match_recorded(dataset: Dataset, recorded: Iterable[RecordedInference], model: str | None = None) -> Matched:
    """The recordings of the dataset's images, found by the digest of the file, else by its name in the metadata.

    Args:
        dataset: whose images.
        recorded: in any order; refusals and explanations are passed over.
        model: only this one's.

    Raises:
        EvaluationError: when nothing was recorded of the images, or answers of several models were.
    """
    by_digest, by_id, by_name = _index(dataset.items)
    latest: dict[str, RecordedInference] = {}
    repeated: set[str] = set()
    models: set[str] = set()
    for each in recorded:
        if each.records is None or each.explanation or (model is not None and each.model != model):
            continue
        digest = each.image.digest if each.image else ""
        for item in by_digest.get(digest) or _named(each, by_id, by_name):
            if item.question and not _about(item, each):
                continue
            models.add(f"{each.model}:{each.version}")
            if item.id in latest:
                repeated.add(item.id)
            if item.id not in latest or latest[item.id].started <= each.started:
                latest[item.id] = each
    if not latest:
        raise EvaluationError(
            f"None of the {len(dataset.items)} images was recorded, by file or by name in the metadata"
        )
    if len(models) > 1:
        raise EvaluationError(f"Expected recordings of one model, got {', '.join(sorted(models))}; choose with --name")
    records = {item.id: _records(item, latest[item.id]) for item in dataset.items if item.id in latest}
    failures = {item.id: "was not recorded" for item in dataset.items if item.id not in latest}
    return Matched(collected=Collected(records, failures), model=models.pop(), repeated=len(repeated))


def _index(items: Sequence[Item]) -> tuple[_Index, _Index, _Index]:
    """Items by the digest of their image, by id, and by the image's name without its folders."""
    by_digest: dict[str, list[Item]] = {}
    by_id = {item.id: [item] for item in items}
    by_name: dict[str, list[Item]] = {}
    digests: dict[str, str] = {}
    for item in items:
        path = str(item.image)
        if path not in digests:
            digests[path] = hashlib.sha256(item.image.read_bytes()).hexdigest()
        by_digest.setdefault(digests[path], []).append(item)
        by_name.setdefault(item.image.name, []).append(item)
    # A file name that several images have, in several folders, names none of them.
    clear = {name: found for name, found in by_name.items() if len({each.image for each in found}) == 1}
    return by_digest, by_id, clear


def _named(recorded: RecordedInference, by_id: _Index, by_name: _Index) -> Sequence[Item]:
    for entry in recorded.metadata:
        if entry.key.lower() in _NAMES and isinstance(entry.value, str):
            found = by_id.get(entry.value) or by_name.get(PurePosixPath(entry.value).name)
            if found:
                return found
    return ()


def _about(item: Item, recorded: RecordedInference) -> bool:
    return any(each.get("prompt") == item.question for each in recorded.records or ())


def _records(item: Item, recorded: RecordedInference) -> Sequence[Mapping[str, object]]:
    records = recorded.records or ()
    return [each for each in records if each.get("prompt") == item.question] if item.question else records
