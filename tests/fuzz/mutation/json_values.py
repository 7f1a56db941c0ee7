"""Mutators of JSON: a value anywhere in a document becomes another, is left out, comes twice, or is nested."""

import json
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from tests.fuzz.mutation.encodings import mutated_base64
from tests.fuzz.mutation.images import mutated_image, no_image

__all__ = ("JSON", "Pairs", "Raw", "mutated_json", "parsed", "written")

_NUMBERS = (
    "0", "-0", "-1", "1", "2", "0.5", "1e-400", "1e308", "1e999", "-1e999", "NaN", "Infinity", "-Infinity", "255",
    "256", "65536",
    "2147483647", "2147483648", "-2147483649", "4294967296", "9223372036854775807", "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616", "-9223372036854775809", "1" + "0" * 400, "0." + "3" * 400, "1e00000000000000001",
    "3.0000000000000001",
)  # fmt: skip
_TEXTS = (
    '""', '" "', '"\\u0000"', '"\\ud800"', '"\\ud83d\\ude00"', '"a\\u202eb"', '"\\r\\nX-Injected: 1"',
    '"../../etc/passwd"',
    '"file:///etc/passwd"', '"http://127.0.0.1:1/"', '"BYTES"', '"FP32"', '"INT64"', '"BF16"', '"STRING"', '"nan"',
    '"null"', '"1"',
    '"true"', '"{}"', '"[]"', '"[{\\"key\\": 1}]"', '"' + "a" * 5000 + '"', '"' + "\\u00e9" * 900 + '"', '"detector"',
    '"nobody"',
    '"data:image/png;base64,AAAA"', '"data:;base64"', '"DT_FLOAT32"', '"%s%n"', '"{0.__class__}"', '"{{7*7}}"',
)  # fmt: skip
_OTHERS = (
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "[[]]",
    "[null]",
    '{"": null}',
    "[[[[1]]]]",
    '{"b64": ""}',
    '{"b64": 1}',
    '[1, "a", null]',
)
_NAMES = (
    "", "id", "model", "model_name", "parameters", "inputs", "outputs", "instances", "signature_name", "name",
    "shape", "datatype",
    "data", "binary_data_size", "binary_data_output", "binary_data", "classification", "score_threshold", "top_k",
    "labels", "prompts",
    "metadata", "iou_threshold", "max_new_tokens", "temperature", "top_p", "stop", "seed", "timeout", "priority",
    "sequence_id",
    "shared_memory_region", "candidate_labels", "return_full_text", "samples", "__class__", "b64", "url",
    "specversion", "gmap", "ndarray",
)  # fmt: skip


class Pairs(list[tuple[str, Any]]):
    """An object, whose names may come twice."""


class Raw(str):
    """A token that is written unchanged, even if it is not JSON."""

    __slots__ = ()


def parsed(data: bytes) -> Any:
    """JSON with objects as `Pairs`.

    Raises:
        ValueError: when it is none.
    """
    return json.loads(data, object_pairs_hook=Pairs)


def written(value: Any) -> bytes:
    """What `parsed` reads."""
    return _text(value).encode(errors="surrogatepass")


def mutated_json(data: bytes, random: Random) -> tuple[str, bytes] | None:
    """What was done to JSON, and what came of it; None for what is no JSON."""
    kind = random.choice(list(JSON))
    try:
        return kind, written(JSON[kind](parsed(data), random))
    except (ValueError, RecursionError):  # Nested by a mutation before, as likely as not.
        return None


def _text(value: Any) -> str:
    if isinstance(value, Raw):
        return value
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{json.dumps(name)}: {_text(member)}" for name, member in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _places(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    yield path
    if isinstance(value, list):
        for index, element in enumerate(value[:40]):
            yield from _places(element[1] if isinstance(value, Pairs) else element, (*path, index))


def _at(value: Any, path: tuple[int, ...]) -> Any:
    for index in path:
        value = value[index][1] if isinstance(value, Pairs) else value[index]
    return value


def _with(value: Any, path: tuple[int, ...], other: Any) -> Any:
    if not path:
        return other
    index, *rest = path
    if isinstance(value, Pairs):
        name, inner = value[index]
        return Pairs([*value[:index], (name, _with(inner, tuple(rest), other)), *value[index + 1 :]])
    return [*value[:index], _with(value[index], tuple(rest), other), *value[index + 1 :]]


def _somewhere(wanted: Callable[[Any], bool], change: Callable[[Any, Random], Any]) -> Callable[[Any, Random], Any]:
    def mutate(document: Any, random: Random) -> Any:
        places = [path for path in _places(document) if wanted(_at(document, path))]
        if not places:
            return document
        place = random.choice(places)
        return _with(document, place, change(_at(document, place), random))

    return mutate


def _anything(value: Any) -> bool:
    del value
    return True


def _filled(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _an_object(value: Any) -> bool:
    return isinstance(value, Pairs)


def _encoded_bytes(value: Any) -> bool:
    return isinstance(value, str) and len(value) > 60 and " " not in value


def _retyped(value: Any, random: Random) -> Any:
    del value
    return Raw(random.choice((random.choice(_NUMBERS), random.choice(_TEXTS), random.choice(_OTHERS))))


def _another_number(value: Any, random: Random) -> Any:
    del value
    return Raw(random.choice(_NUMBERS))


def _another_text(value: Any, random: Random) -> Any:
    del value
    return Raw(random.choice(_TEXTS))


def _dropped(value: Any, random: Random) -> Any:
    index = random.randrange(len(value))
    return type(value)([*value[:index], *value[index + 1 :]])


def _doubled(value: Any, random: Random) -> Any:
    index = random.randrange(len(value))
    return type(value)([*value, *[value[index]] * random.choice((1, 1, 2, 300))])


def _reordered(value: Any, random: Random) -> Any:
    return type(value)(random.sample(value, len(value)))


def _added(value: Any, random: Random) -> Any:
    return Pairs([*value, (random.choice(_NAMES), _retyped(None, random))])


def _renamed(value: Any, random: Random) -> Any:
    if not value:
        return _added(value, random)
    index = random.randrange(len(value))
    name = random.choice((*_NAMES, value[index][0].upper(), value[index][0] + "\u0000", "n" * 3000))
    return Pairs([*value[:index], (name, value[index][1]), *value[index + 1 :]])


def _nested(value: Any, random: Random) -> Any:
    depth = random.choice((1, 2, 8, 64, 70, 500, 5000))
    opened, closed = random.choice((("[", "]"), ('{"a": ', "}")))
    return Raw(opened * depth + _text(value) + closed * depth)


def _unnested(value: Any, random: Random) -> Any:
    found = random.choice(value)
    return found[1] if isinstance(value, Pairs) else found


def _another_image(value: Any, random: Random) -> Any:
    del value
    return mutated_base64(random.choice((mutated_image, no_image))(random), random)


JSON: Mapping[str, Callable[[Any, Random], Any]] = {
    "retyped": _somewhere(_anything, _retyped),
    "another number": _somewhere(lambda value: isinstance(value, int | float), _another_number),
    "another text": _somewhere(lambda value: isinstance(value, str), _another_text),
    "dropped": _somewhere(_filled, _dropped),
    "repeated": _somewhere(_filled, _doubled),
    "reordered": _somewhere(_filled, _reordered),
    "field added": _somewhere(_an_object, _added),
    "field renamed": _somewhere(_an_object, _renamed),
    "nested": _somewhere(_anything, _nested),
    "unnested": _somewhere(_filled, _unnested),
    "image": _somewhere(_encoded_bytes, _another_image),
}
"""All of them, by what they do."""
