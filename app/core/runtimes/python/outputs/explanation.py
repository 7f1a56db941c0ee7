"""Read what ``explain`` returns: any value that JSON can hold.

The functions raise an `InferenceError` MODEL_FAILED with the path of the first other value.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from app.core.runtimes.python.outputs.value_parsing import array, describe, invalid_answer, items, text
from tasks.inference.error import truncate

_MAX_DEPTH = 32
_EXPECTED = "null, a boolean, a finite number, a text, or a list, an array or a dict of them"


def read_explanations(value: object, path: str, count: int, inputs: str) -> list[Any]:
    """Return an explanation for each of `count` inputs; `inputs` is the word for one of them."""
    explanations = items(value)
    if explanations is None or len(explanations) != count:
        raise invalid_answer(path, f"a list of {count} explanations, one for each {inputs}", describe(value))
    return [read_explanation(explanation, f"{path}[{index}]") for index, explanation in enumerate(explanations)]


def read_explanation(value: object, path: str, depth: int = 0) -> Any:
    """Return `value` in the types of JSON; arrays of any library become lists."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return text(value, path)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise invalid_answer(path, "a finite number", describe(float(value)))
        return float(value)
    if depth == _MAX_DEPTH:
        raise invalid_answer(path, f"at most {_MAX_DEPTH} lists or dicts inside each other", "more")
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        if wrong_keys := [key for key in entries if not isinstance(key, str)]:
            raise invalid_answer(path, "texts as keys", describe(wrong_keys[0]))
        return {
            text(key, path): read_explanation(entry, f'{path}["{truncate(str(key))}"]', depth + 1)
            for key, entry in entries.items()
        }
    if isinstance(value, (list, tuple)):
        listed = cast("Sequence[object]", value)
        return [read_explanation(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(listed)]
    if hasattr(value, "shape"):
        numbers = array(value, path)
        if numbers.dtype.kind in "biuf":
            return read_explanation(numbers.tolist(), path, depth)
    raise invalid_answer(path, _EXPECTED, describe(value))
