"""Test of the mix of metadata values."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from app.plugins.drift.comparison import compare
from app.plugins.drift.result import MixDrift
from app.plugins.drift.sample import Sample
from app.plugins.drift.test_suite import compare_mix, describe_change
from tests.support.data.drift_samples import sample

BASELINE, PRODUCTION = 200, 120


def with_metadata(count: int, **values: Callable[[int], str | None]) -> Sample:
    """Return images whose metadata is computed from their index; None leaves a key out."""
    metadata = [
        {key: text for key, value in values.items() if (text := value(index)) is not None} for index in range(count)
    ]
    return msgspec.structs.replace(sample(count), metadata=metadata)


def mix_of(first: Sample, second: Sample) -> tuple[dict[str, MixDrift], list[str]]:
    """Return the tested keys and the notes."""
    notes: list[str] = []
    drifts = compare_mix(first, second, 0.01, 900, np.random.default_rng(0), notes)
    return {drift.key: drift for drift in drifts}, notes


def cycle(*values: str | None) -> Callable[[int], str | None]:
    return lambda index: values[index % len(values)]


def test_new_and_vanished_cameras_drift_and_are_named() -> None:
    first = with_metadata(BASELINE, camera=cycle("north", "east", "west"))
    second = with_metadata(PRODUCTION, camera=cycle("north", "east", "lobby"))
    (test,) = [test for test in compare(first, second).tests if test.name == "mix"]
    assert test.drifted
    assert (test.about, test.where) == ("metadata: camera", "camera: new lobby; gone west")
    (drift,) = mix_of(first, second)[0].values()
    counts = [(value.value, value.baseline, value.production) for value in drift.values]
    assert counts[:2] == [("lobby", 0, 40), ("west", 66, 0)]


def test_changed_shares_and_missing_values_drift() -> None:
    same = cycle("x", "y", "z")
    first = with_metadata(BASELINE, camera=cycle("north", "east"), firmware=cycle("1"), same=same)
    cameras, firmware = cycle("north", "north", "north", "east"), cycle("1", "1", None)
    drifts, notes = mix_of(first, with_metadata(PRODUCTION, camera=cameras, firmware=firmware, same=same))
    assert [drifts[key].drifted for key in ("camera", "firmware", "same")] == [True, True, False]
    assert (drifts["camera"].change, drifts["firmware"].change) == ("east 50% -> 25%", "new (no value)")
    assert notes == []


def test_ids_times_and_constants_are_not_categories() -> None:
    def recorded(prefix: str, count: int) -> Sample:
        return with_metadata(
            count, id=lambda index: f"{prefix}{index}", day=cycle(f"2026-11-{prefix}"),
            at=cycle(f"2026-11-{prefix}T10:00:00Z", f"2026-11-{prefix}T11:00:00Z"), site=cycle("dock"),
        )  # fmt: skip

    drifts, notes = mix_of(recorded("10", BASELINE), recorded("11", PRODUCTION))
    assert drifts == {}
    assert notes == ["Metadata: at, day, id: ids or times, not categories; not compared"]


def test_ids_instead_of_cameras_drift() -> None:
    first = with_metadata(BASELINE, camera=cycle("north", "east"))
    drifts, _ = mix_of(first, with_metadata(PRODUCTION, camera=lambda index: f"camera {index}"))
    assert drifts["camera"].drifted
    assert drifts["camera"].change.startswith("new camera 0, camera 1, camera 10, camera 100, camera 101 and 115 more;")


def test_keys_of_only_one_sample_are_noted() -> None:
    values = cycle("a", "b")
    drifts, notes = mix_of(with_metadata(BASELINE, folder=values), with_metadata(PRODUCTION, camera=values))
    assert drifts == {}
    assert notes == ["Metadata: only one of both has camera, folder; not compared"]


def test_only_most_frequent_keys_are_tested() -> None:
    keys = {f"k{index:02}": cycle("a", "b") for index in range(60)}
    drifts, notes = mix_of(with_metadata(BASELINE, **keys), with_metadata(PRODUCTION, **keys))
    assert len(drifts) == 50
    assert notes == ["Metadata: k50, k51, k52, k53, k54 and 5 more: too many keys; not compared"]


@pytest.mark.parametrize("values", [2, 40])
def test_false_alarm_rate_of_a_key_stays_below_the_level(values: int) -> None:
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(200):
        first, second = (with_metadata(n, camera=cycle(*map(str, rng.zipf(1.5, n) % values))) for n in (60, 40))
        alarms += any(drift.p <= 0.05 for drift in mix_of(first, second)[0].values())
    assert alarms / 200 <= 0.07


def test_names_of_clients_are_printable_and_short() -> None:
    change = describe_change({"a": 10}, {"a": 5, "\x1b[31m": 3, "x" * 100: 2})
    assert change == f"new '\\x1b[31m', {'x' * 60}..."
    assert describe_change({"a": 5, "": 5}, {"a": 10}) == "gone ''"
