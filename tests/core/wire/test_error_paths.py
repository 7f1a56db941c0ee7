"""Test the translation of error paths into fields of a protocol's body."""

import pytest

from app.core.wire.error_paths import map_path, move
from tasks.inference.error import ErrorKind, InferenceError

PLACES = {"": "tensors[3]", "data": "tensors[3].flat", "data[0]": "image", "parameters": "", "parameters.k": "top_k"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", "tensors[3]"),
        ("shape", "tensors[3].shape"),
        ("datatype", "tensors[3].datatype"),
        ("data", "tensors[3].flat"),
        ("data[0]", "image"),
        ("data[0][2]", "image[2]"),
        ("data[01]", "tensors[3].flat[01]"),
        ("data[1].b64", "tensors[3].flat[1].b64"),
        ("parameters.k[1]", "top_k[1]"),
        ("parameters.kind", "kind"),
        ("[2]", "tensors[3][2]"),
    ],
)
def test_longest_prefix_of_whole_steps_is_replaced(path: str, expected: str) -> None:
    assert move(path, PLACES) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("inputs[12].data", "12 data"),
        ("inputs[0]", "0 "),
        ("inputs", "instances"),
        ("parameters.a", "query.a"),
        ("model.k", "model.k"),
        ("", ""),
    ],
)
def test_error_is_the_same_at_its_new_path(path: str, expected: str) -> None:
    error = InferenceError(ErrorKind.OVERLOADED, "Expected less", path, retry_after=3)
    places = {"inputs": "instances", "parameters": "query"}
    mapped = map_path(error, lambda index, subpath: f"{index} {subpath}", places)
    assert (mapped.kind, mapped.message, mapped.path, mapped.retry_after) == (
        ErrorKind.OVERLOADED,
        "Expected less",
        expected,
        3,
    )
