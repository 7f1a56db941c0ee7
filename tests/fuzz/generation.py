"""Generate requests; the same seed and index always give the same request."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from tests.fuzz.cases import cases
from tests.fuzz.mutation.calls import CALLS
from tests.fuzz.mutation.framing import break_framing, generate_http2
from tests.fuzz.mutation.http import HTTP
from tests.fuzz.requests import Bytes, Call, Http, Request

_UNCHANGED = 0.04
_BROKEN_FRAMING = 0.06
_HTTP2 = 0.01


class Fuzzed(msgspec.Struct, frozen=True, kw_only=True):
    """A generated request and its origin.

    Attributes:
        index: index in the campaign.
        case: name of the case that was mutated.
        kinds: mutations, in order.
        request: the request to send.
    """

    index: int
    case: str
    kinds: tuple[str, ...]
    request: Request


def generate_request(seed: int, index: int, protocols: Sequence[str] = ()) -> Fuzzed:
    """Return request `index` of `seed`, for some or all protocols."""
    random = Random(f"{seed}:{index}")
    if not protocols and random.random() < _HTTP2:
        return Fuzzed(index=index, case="http2", kinds=("HTTP/2 frames",), request=generate_http2(random))
    all_cases = cases(protocols)
    # Choose the protocol first, so that all protocols get the same number of requests.
    protocol = random.choice(sorted({request.protocol for _, request in all_cases}))
    case, request = random.choice([pair for pair in all_cases if pair[1].protocol == protocol])
    kinds, request = mutate(request, random)
    return Fuzzed(index=index, case=case, kinds=kinds, request=request)


def mutate(request: Request, random: Random) -> tuple[tuple[str, ...], Request]:
    """Return the mutations of `request`, and the mutated request."""
    if random.random() < _UNCHANGED:
        return ("unchanged",), request
    kinds: list[str] = []
    for _ in range(random.choice((1, 1, 1, 2, 2, 3))):
        kind, request = _mutated_once(request, random)
        kinds.append(kind)
    if isinstance(request, Http) and random.random() < _BROKEN_FRAMING:
        kind, request = break_framing(request, random)
        kinds.append(f"framing: {kind}")
    return tuple(kinds), request


def _mutated_once(request: Request, random: Random) -> tuple[str, Request]:
    if isinstance(request, Bytes):
        return "unchanged", request
    mutators: Mapping[str, tuple[int, Any]] = CALLS if isinstance(request, Call) else HTTP
    (kind,) = random.choices(list(mutators), [weight for weight, _ in mutators.values()])
    return kind, mutators[kind][1](request, random)
