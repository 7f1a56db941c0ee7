"""Read what ``explain`` returns: any value that JSON can hold. Arrays of any library become lists."""

import json
from typing import Any

from app.core.runtimes.python.outputs.value_parsing import array, describe, invalid_answer, items


def read_explanations(value: object, path: str, count: int, inputs: str) -> list[Any]:
    """Return an explanation for each of `count` inputs; `inputs` is the word for one of them.

    Raise MODEL_FAILED with the path of the first explanation that JSON cannot hold.
    """
    explanations = items(value)
    if explanations is None or len(explanations) != count:
        raise invalid_answer(path, f"a list of {count} explanations, one for each {inputs}", describe(value))
    return [read_explanation(explanation, f"{path}[{index}]") for index, explanation in enumerate(explanations)]


def read_explanation(value: object, path: str) -> Any:
    """Return `value` in the types of JSON."""
    try:
        return json.loads(json.dumps(value, default=_as_list, allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        expected = "a value that JSON can hold, of finite numbers and texts"
        raise invalid_answer(path, expected, str(error)) from None


def _as_list(value: object) -> object:
    numbers = array(value, "") if hasattr(value, "shape") else None
    if numbers is None or numbers.dtype.kind not in "biuf":
        raise TypeError(describe(value))
    return numbers.tolist()
