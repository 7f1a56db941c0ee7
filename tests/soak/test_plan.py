"""In which order faults come."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from soak.plan import scheduled

GROUPS = {"a": "models", "b": "models", "c": "clients", "d": "store", "e": "process", "f": "process"}


def _turns(seed: int, count: int) -> list[list[str]]:
    return [list(turn) for turn in itertools.islice(scheduled(GROUPS, seed, alone=["process"]), count)]


@given(st.integers(0, 10_000))
def test_every_kind_comes_once_before_any_comes_again(seed: int) -> None:
    kinds = [kind for turn in _turns(seed, 40) for kind in turn]
    for start in range(0, len(kinds) - len(GROUPS), len(GROUPS)):
        assert sorted(kinds[start : start + len(GROUPS)]) == sorted(GROUPS)


@given(st.integers(0, 10_000))
def test_only_some_come_together(seed: int) -> None:
    for turn in _turns(seed, 40):
        groups = [GROUPS[kind] for kind in turn]
        assert len(groups) == len(set(groups)) <= 2
        assert len(groups) == 1 or "process" not in groups


def test_the_seed_decides() -> None:
    assert _turns(1, 30) == _turns(1, 30) != _turns(2, 30)
    assert any(len(turn) == 2 for turn in _turns(1, 30))
