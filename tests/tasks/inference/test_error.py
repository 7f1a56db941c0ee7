"""The error type `InferenceError`."""

import pytest

from tasks.inference.error import ErrorKind, InferenceError, invalid


@pytest.mark.parametrize(
    ("prefix", "path", "expected"),
    [
        ("inputs[0]", "", "inputs[0]"),
        ("inputs[0]", "data", "inputs[0].data"),
        ("inputs", "[0].data", "inputs[0].data"),
        ("inputs[0].data", "[1]", "inputs[0].data[1]"),
        ("a", "b.c", "a.b.c"),
    ],
)
def test_prefix_is_put_before_the_path(prefix: str, path: str, expected: str) -> None:
    error = InferenceError(ErrorKind.TOO_LARGE, "Too much", path)
    prefixed = error.with_prefix(prefix)
    assert (prefixed.kind, prefixed.message, prefixed.path) == (ErrorKind.TOO_LARGE, "Too much", expected)
    assert error.path == path, "the error itself stays as it was"


def test_error_text_is_path_and_message() -> None:
    assert str(invalid("Expected more", "inputs")) == "inputs: Expected more"
    assert str(invalid("Expected more")) == "Expected more"
    assert invalid("Expected more").kind is ErrorKind.INVALID_REQUEST


def test_long_messages_and_paths_are_truncated() -> None:
    error = invalid("m" * 1_000_000, "p" * 1_000_000).with_prefix("inputs[0]")
    assert error.message == "m" * 2000 + "..."
    assert error.path.startswith("inputs[0].ppp")
    assert len(str(error)) < 3100
    assert error.args == (error.message,)
