"""Test the mix of production: how often each value of each metadata key occurs, such as the images of each camera."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from app.drift.hypothesis_tests import mix_chi_square
from app.drift.result import MixDrift, ValueCount
from app.drift.sample import Sample

NO_VALUE = "(no value)"
"""Stands for images that lack the key."""

_MIN_IMAGES = 5
_MAX_VALUES = 200
_MAX_KEYS = 50
_MAX_NAMES = 5
_MAX_LENGTH = 60

_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")


def compare_mix(
    baseline: Sample,
    production: Sample,
    alpha: float,
    max_tables: float,
    rng: np.random.Generator,
    notes: list[str],
) -> list[MixDrift]:
    """Test each metadata key that both samples have.

    Images without the key count as a value of their own. Values with fewer than five images in both samples together
    count as one value. So an id is not tested: all its values are rare. Keys with ISO 8601 times are not tested either.
    These rules ignore which sample an image belongs to, so the tests stay valid.

    Args:
        baseline: the reference images.
        production: the current images.
        alpha: the maximum probability of a false alarm over all keys.
        max_tables: maximum number of random tables for a single key.
        rng: draws the tables.
        notes: receives a sentence about keys that are not tested.
    """
    keys, other_keys = (Counter(key for entry in sample.metadata for key in entry) for sample in (baseline, production))
    if unshared := sorted(keys.keys() ^ other_keys.keys()):
        notes.append(f"Metadata: only one of both has {quote_names(unshared)}; not compared")
    frequent = sorted(keys.keys() & other_keys.keys(), key=lambda key: (-keys[key] - other_keys[key], key))
    if len(frequent) > _MAX_KEYS:
        notes.append(f"Metadata: {quote_names(frequent[_MAX_KEYS:])}: too many keys; not compared")
    counts = {key: (_count_values(key, baseline), _count_values(key, production)) for key in frequent[:_MAX_KEYS]}
    tables = {key: table for key in counts if len(table := _categories(*counts[key])) > 1}
    if untested := sorted(key for key in counts.keys() - tables.keys() if len(counts[key][0] | counts[key][1]) > 1):
        notes.append(f"Metadata: {quote_names(untested)}: ids or times, not categories; not compared")
    drifts: list[MixDrift] = []
    for key, table in tables.items():
        p = mix_chi_square(np.array(table).T, rng, max_tables * len(tables))
        drifts.append(
            MixDrift(
                key=key, p=p, drifted=p * len(tables) <= alpha, change=describe_change(*counts[key]),
                values=_value_counts(*counts[key])[:_MAX_VALUES],
            )
        )  # fmt: skip
    return drifts


def describe_change(baseline: Mapping[str, int], production: Mapping[str, int]) -> str:
    """Name the new and the vanished values; without these, the value whose share has changed most."""
    values = _value_counts(baseline, production)
    new = [value.value for value in values if not value.baseline]
    gone = [value.value for value in values if not value.production]
    if new or gone:
        return "; ".join(f"{word} {quote_names(names)}" for word, names in (("new", new), ("gone", gone)) if names)
    first = values[0]
    share, other_share = first.baseline / sum(baseline.values()), first.production / sum(production.values())
    return f"{quote_names([first.value])} {share:.0%} -> {other_share:.0%}"


def quote_names(names: Sequence[str]) -> str:
    """List names of clients for one line of a log or terminal: few, shortened, without control characters."""
    printable = [name if name.isprintable() else repr(name) for name in names[:_MAX_NAMES]]
    quoted = [name if len(name) <= _MAX_LENGTH else f"{name[:_MAX_LENGTH]}..." for name in printable]
    return ", ".join(quoted) + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")


def _count_values(key: str, sample: Sample) -> Counter[str]:
    return Counter(entry.get(key, NO_VALUE) for entry in sample.metadata)


def _categories(baseline: Counter[str], production: Counter[str]) -> list[tuple[int, int]]:
    """Return the counts of each category in both samples; fewer than two categories cannot be compared."""
    pooled = baseline + production
    if all(_TIME.fullmatch(value) for value in pooled if value != NO_VALUE):
        return []
    frequent = [value for value, count in pooled.most_common(_MAX_VALUES) if count >= _MIN_IMAGES]
    pairs = [(baseline[value], production[value]) for value in frequent]
    rare = baseline.total() - sum(pair[0] for pair in pairs), production.total() - sum(pair[1] for pair in pairs)
    return [*pairs, rare] if any(rare) else pairs


def _value_counts(baseline: Mapping[str, int], production: Mapping[str, int]) -> list[ValueCount]:
    """Return the counts of each value, by descending change of its share."""
    totals = max(1, sum(baseline.values())), max(1, sum(production.values()))
    counts = [
        ValueCount(value=value, baseline=baseline.get(value, 0), production=production.get(value, 0))
        for value in sorted({*baseline, *production})
    ]
    return sorted(counts, key=lambda count: -abs(count.production / totals[1] - count.baseline / totals[0]))
