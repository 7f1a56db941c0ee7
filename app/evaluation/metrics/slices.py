"""Slices of results by metadata."""

from collections.abc import Iterator, Sequence

from app.evaluation.answers import EvaluatedItem

_NO_VALUE = "(none)"
"""The value of items without the metadata key."""


def slice_results(results: Sequence[EvaluatedItem], keys: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """Yield ``"key = value"`` and the indexes of its results, for each value of each metadata key."""
    for key in keys:
        indexes: dict[str, list[int]] = {}
        for index, result in enumerate(results):
            indexes.setdefault(result.item.metadata.get(key, _NO_VALUE), []).append(index)
        for value in sorted(indexes):
            yield f"{key} = {value}", indexes[value]
