"""Mutators of JSON: replace, remove, repeat or nest any value in a document."""

import json
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from tests.fuzz.mutation.encodings import encode_mutated_base64
from tests.fuzz.mutation.images import invalid_image, mutate_image

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
    '"missing"',
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
    "metadata", "iou_threshold", "agnostic", "nms", "max_new_tokens", "temperature", "top_p", "stop", "seed", "timeout",
    "priority", "sequence_id",
    "shared_memory_region", "candidate_labels", "return_full_text", "samples", "__class__", "b64", "url",
    "specversion", "gmap", "ndarray",
)  # fmt: skip


class Pairs(list[tuple[str, Any]]):
    """A JSON object that may have duplicate names."""


class Raw(str):
    """A token that is written unchanged, even if it is not JSON."""

    __slots__ = ()


def parse(data: bytes) -> Any:
    """Parse JSON with objects as `Pairs`.

    Raises:
        ValueError: when it is not JSON.
    """
    return json.loads(data, object_pairs_hook=Pairs)


def serialize(value: Any) -> bytes:
    """Serialize what `parse` returns."""
    return _text(value).encode(errors="surrogatepass")


def mutate_json(data: bytes, random: Random) -> tuple[str, bytes] | None:
    """Return the mutation and the mutated JSON; None if `data` is not JSON."""
    kind = random.choice(list(JSON))
    try:
        return kind, serialize(JSON[kind](parse(data), random))
    except (ValueError, RecursionError):  # An earlier mutation may have nested it too deeply.
        return None


def _text(value: Any) -> str:
    if isinstance(value, Raw):
        return value
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{json.dumps(name)}: {_text(member)}" for name, member in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _paths(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    yield path
    if isinstance(value, list):
        for index, element in enumerate(value[:40]):
            yield from _paths(element[1] if isinstance(value, Pairs) else element, (*path, index))


def _value_at(value: Any, path: tuple[int, ...]) -> Any:
    for index in path:
        value = value[index][1] if isinstance(value, Pairs) else value[index]
    return value


def _replace_at(value: Any, path: tuple[int, ...], other: Any) -> Any:
    if not path:
        return other
    index, *rest = path
    if isinstance(value, Pairs):
        name, inner = value[index]
        return Pairs([*value[:index], (name, _replace_at(inner, tuple(rest), other)), *value[index + 1 :]])
    return [*value[:index], _replace_at(value[index], tuple(rest), other), *value[index + 1 :]]


def _mutate_at(predicate: Callable[[Any], bool], change: Callable[[Any, Random], Any]) -> Callable[[Any, Random], Any]:
    def mutate(document: Any, random: Random) -> Any:
        paths = [path for path in _paths(document) if predicate(_value_at(document, path))]
        if not paths:
            return document
        path = random.choice(paths)
        return _replace_at(document, path, change(_value_at(document, path), random))

    return mutate


def _any_value(value: Any) -> bool:
    del value
    return True


def _is_filled_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _is_object(value: Any) -> bool:
    return isinstance(value, Pairs)


def _looks_like_base64(value: Any) -> bool:
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
    prefix, suffix = random.choice((("[", "]"), ('{"a": ', "}")))
    return Raw(prefix * depth + _text(value) + suffix * depth)


def _unnested(value: Any, random: Random) -> Any:
    element = random.choice(value)
    return element[1] if isinstance(value, Pairs) else element


def _another_image(value: Any, random: Random) -> Any:
    del value
    return encode_mutated_base64(random.choice((mutate_image, invalid_image))(random), random)


JSON: Mapping[str, Callable[[Any, Random], Any]] = {
    "retyped": _mutate_at(_any_value, _retyped),
    "another number": _mutate_at(lambda value: isinstance(value, int | float), _another_number),
    "another text": _mutate_at(lambda value: isinstance(value, str), _another_text),
    "dropped": _mutate_at(_is_filled_list, _dropped),
    "repeated": _mutate_at(_is_filled_list, _doubled),
    "reordered": _mutate_at(_is_filled_list, _reordered),
    "field added": _mutate_at(_is_object, _added),
    "field renamed": _mutate_at(_is_object, _renamed),
    "nested": _mutate_at(_any_value, _nested),
    "unnested": _mutate_at(_is_filled_list, _unnested),
    "image": _mutate_at(_looks_like_base64, _another_image),
}
"""All of them, by what they do."""
