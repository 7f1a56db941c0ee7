"""When which fault comes: a schedule that the seed determines."""

import random
from collections.abc import Iterator, Mapping, Sequence

__all__ = ("scheduled",)

_TOGETHER = 0.25
"""The share of turns in which a second fault comes with the first."""


def scheduled(kinds: Mapping[str, str], seed: int, *, alone: Sequence[str]) -> Iterator[Sequence[str]]:
    """The faults of one turn after another, for ever: each kind once before any comes again.

    Args:
        kinds: the group of each kind. Two of one group never come together.
        seed: decides the order.
        alone: groups that never run together with another.
    """
    chance = random.Random(seed)
    while True:
        left = list(kinds)
        chance.shuffle(left)
        while left:
            turn = [left.pop()]
            group = kinds[turn[0]]
            others = [kind for kind in left if kinds[kind] != group and kinds[kind] not in alone]
            if group not in alone and others and chance.random() < _TOGETHER:
                turn.append(others[-1])
                left.remove(others[-1])
            yield turn
