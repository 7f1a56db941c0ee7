"""Schedule faults in an order that the seed determines."""

import random
from collections.abc import Iterator, Mapping, Sequence

_PAIR_PROBABILITY = 0.25
"""The share of turns with a second fault."""


def fault_schedule(kinds: Mapping[str, str], seed: int, *, alone: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the faults of each turn, without end; each kind runs once before any is repeated.

    Args:
        kinds: the group of each kind. Two of a group never run together.
        seed: determines the order.
        alone: groups that never run together with another.
    """
    chance = random.Random(seed)
    while True:
        remaining = list(kinds)
        chance.shuffle(remaining)
        while remaining:
            turn = [remaining.pop()]
            group = kinds[turn[0]]
            others = [kind for kind in remaining if kinds[kind] != group and kinds[kind] not in alone]
            if group not in alone and others and chance.random() < _PAIR_PROBABILITY:
                turn.append(others[-1])
                remaining.remove(others[-1])
            yield turn
