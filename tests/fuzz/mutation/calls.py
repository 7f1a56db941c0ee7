"""Mutators of gRPC calls."""

from collections.abc import Callable, Mapping
from random import Random

from msgspec.structs import replace

from tests.fuzz.mutation.octets import mutate_octets
from tests.fuzz.mutation.protobuf import mutate_message
from tests.fuzz.requests import Call

_METADATA: tuple[tuple[str, str | bytes], ...] = (
    ("x-request-id", "a" * 900), ("x-request-id", ""), ("x-base-id", "b c"), ("traceparent", "00-zz"),
    ("triton_grpc_error", "true"),
    ("data-bin", b"\x00\xff"), ("authorization", "Bearer x"), ("grpc-accept-encoding", "br"), ("timeout", "nan"),
)  # fmt: skip


def _message(call: Call, random: Random) -> Call:
    if not call.messages or call.method.endswith("Unload"):  # Only the spare model may be loaded and unloaded.
        return _octets(call, random)
    index = random.randrange(len(call.messages))
    changed = mutate_message(call.messages[index], random)
    return replace(call, messages=(*call.messages[:index], changed, *call.messages[index + 1 :]))


def _octets(call: Call, random: Random) -> Call:
    return replace(call, messages=tuple(mutate_octets(message, random) for message in call.messages))


def _other_method(call: Call, random: Random) -> Call:
    """Send the message to another method, or to one that does not exist."""
    service = call.method.rpartition("/")[0]
    names = (
        "ModelInfer",
        "ModelReady",
        "ModelMetadata",
        "ModelStatistics",
        "RepositoryIndex",
        "Predict",
        "Online",
        "Nothing",
    )
    return replace(
        call, method=f"{service}/{random.choice(names)}", streams=(False, False), messages=call.messages[:1] or (b"",)
    )


def _metadata(call: Call, random: Random) -> Call:
    return replace(call, metadata=(*call.metadata, *random.choices(_METADATA, k=random.choice((1, 2, 9)))))


def _timeout(call: Call, random: Random) -> Call:
    return replace(call, timeout=random.choice((0.001, 0.01, 0.2)))


def _compressed(call: Call, random: Random) -> Call:
    del random
    return replace(call, compressed=True)


def _message_count(call: Call, random: Random) -> Call:
    """Change the number of messages in a stream."""
    if not call.streams[0]:
        return _message(call, random)
    return replace(call, messages=tuple(random.choices(call.messages or (b"",), k=random.choice((0, 1, 3, 12)))))


CALLS: Mapping[str, tuple[int, Callable[[Call, Random], Call]]] = {
    "protobuf field": (30, _message),
    "protobuf octets": (6, _octets),
    "other method": (2, _other_method),
    "metadata": (3, _metadata),
    "timeout": (1, _timeout),
    "compressed call": (1, _compressed),
    "messages of a stream": (2, _message_count),
}
"""Mutators with their weights, by name."""
