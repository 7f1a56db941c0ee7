"""The request of a number: the same one whenever a seed and a number are the same."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from tests.fuzz.cases import cases
from tests.fuzz.mutation.calls import CALLS
from tests.fuzz.mutation.framing import broken_framing, http2_bytes
from tests.fuzz.mutation.http import HTTP
from tests.fuzz.requests import Bytes, Call, Http, Request

__all__ = ("Fuzzed", "generated", "mutated")

_UNCHANGED = 0.04
_BROKEN_FRAMING = 0.06
_HTTP2 = 0.01


class Fuzzed(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and how it came about.

    Attributes:
        index: its number.
        case: what it was made from.
        kinds: what was done to that, in order.
        request: what is sent.
    """

    index: int
    case: str
    kinds: tuple[str, ...]
    request: Request


def generated(seed: int, index: int, protocols: Sequence[str] = ()) -> Fuzzed:
    """Request number `index` of `seed`, of all protocols or of some."""
    random = Random(f"{seed}:{index}")
    if not protocols and random.random() < _HTTP2:
        return Fuzzed(index=index, case="http2", kinds=("HTTP/2 frames",), request=http2_bytes(random))
    every = cases(protocols)
    # A protocol first, so that one with many golden cases is not asked more than the others.
    protocol = random.choice(sorted({request.protocol for _, request in every}))
    case, request = random.choice([pair for pair in every if pair[1].protocol == protocol])
    kinds, request = mutated(request, random)
    return Fuzzed(index=index, case=case, kinds=kinds, request=request)


def mutated(request: Request, random: Random) -> tuple[tuple[str, ...], Request]:
    """What was done to `request`, and what came of it."""
    if random.random() < _UNCHANGED:
        return ("unchanged",), request
    kinds: list[str] = []
    for _ in range(random.choice((1, 1, 1, 2, 2, 3))):
        kind, request = _mutated_once(request, random)
        kinds.append(kind)
    if isinstance(request, Http) and random.random() < _BROKEN_FRAMING:
        kind, request = broken_framing(request, random)
        kinds.append(f"framing: {kind}")
    return tuple(kinds), request


def _mutated_once(request: Request, random: Random) -> tuple[str, Request]:
    if isinstance(request, Bytes):
        return "unchanged", request
    mutators: Mapping[str, tuple[int, Any]] = CALLS if isinstance(request, Call) else HTTP
    (kind,) = random.choices(list(mutators), [weight for weight, _ in mutators.values()])
    return kind, mutators[kind][1](request, random)
