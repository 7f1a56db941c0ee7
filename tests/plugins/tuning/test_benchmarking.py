"""Candidates are measured in turns, and the best one is chosen."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from app.core.assembly.discovery import model_at
from app.plugins.tuning.benchmarking import Measurement, best_measurement, measure_candidates
from app.plugins.tuning.candidates import Candidate, all_candidates, with_candidate
from tests.support.data.images import encode_image, rectangle

MODELS = Path(__file__).parents[3] / "fixtures" / "models"


def measurement(batch: int, *, rate: float, lone: float = 5.0, cpu: float = 1.0) -> Measurement:
    return Measurement(candidate=Candidate(batch), rate=rate, p50=1, p99=2, single_latency=lone, cpu=cpu)


def with_rounds(batch: int, *rates: float) -> Measurement:
    rounds = tuple(measurement(batch, rate=rate) for rate in rates)
    return msgspec.structs.replace(measurement(batch, rate=sorted(rates)[len(rates) // 2]), rounds=rounds)


def test_best_candidate_depends_on_the_goal() -> None:
    candidates = [
        measurement(1, rate=100, lone=5), measurement(4, rate=150, lone=6), measurement(2, rate=90, lone=4, cpu=0.5),
    ]  # fmt: skip
    best = {goal: best_measurement(candidates, goal).candidate.batch for goal in ("throughput", "latency", "cost")}
    assert best == {"throughput": 4, "latency": 2, "cost": 2}


@pytest.mark.parametrize(
    ("second", "expected"),
    [((120, 60, 120), 2), ((120, 45, 120), 1), ((104, 52, 104), 1)],
    ids=["better", "once slower", "small gain"],
)
def test_candidate_must_be_better_than_a_simpler_one_in_every_round(second: Sequence[float], expected: int) -> None:
    measured = [with_rounds(1, 100, 50, 100), with_rounds(2, *second)]
    assert best_measurement(measured, "throughput").candidate.batch == expected


@pytest.mark.parametrize("name", ["classifier", "half_plus_two", "greeter"])
def test_every_candidate_is_measured(name: str) -> None:
    (source,) = model_at(MODELS / name)
    candidates = all_candidates([2], [1], 1.0)
    pairs = [(candidate, with_candidate(source, candidate, 2)) for candidate in candidates]
    rows = measure_candidates(pairs, [encode_image(rectangle())], 2, 0.05, rounds=2)
    assert [row.candidate for row in rows] == candidates
    assert all(row.rate > 0 and 0 < row.p50 <= row.p99 and row.single_latency > 0 and row.cpu > 0 for row in rows)
    assert [len(row.rounds) for row in rows] == [2, 2]


def test_measuring_stops_when_there_is_no_time() -> None:
    (source,) = model_at(MODELS / "half_plus_two")
    pairs = [(candidate, with_candidate(source, candidate, 1)) for candidate in all_candidates([2], [1], 1.0)]
    rows = measure_candidates(pairs, [b""], 1, 0.01, on_measured=lambda: False)
    assert [row.candidate for row in rows] == [pairs[0][0]]
