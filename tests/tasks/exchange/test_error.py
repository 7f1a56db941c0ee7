"""The one error type."""

import pytest

from tasks.exchange.error import ErrorKind, InferenceError, invalid


@pytest.mark.parametrize(
    ("prefix", "path", "whole"),
    [
        ("inputs[0]", "", "inputs[0]"),
        ("inputs[0]", "data", "inputs[0].data"),
        ("inputs", "[0].data", "inputs[0].data"),
        ("inputs[0].data", "[1]", "inputs[0].data[1]"),
        ("a", "b.c", "a.b.c"),
    ],
)
def test_under_puts_a_prefix_before_the_path(prefix: str, path: str, whole: str) -> None:
    error = InferenceError(ErrorKind.TOO_LARGE, "Too much", path)
    moved = error.under(prefix)
    assert (moved.kind, moved.message, moved.path) == (ErrorKind.TOO_LARGE, "Too much", whole)
    assert error.path == path, "the error itself stays as it was"


def test_prefixes_add_up_from_the_inside_out() -> None:
    assert invalid("Bad", "[2]").under("data").under("inputs[1]").path == "inputs[1].data[2]"


def test_the_text_is_the_path_and_the_sentence() -> None:
    assert str(invalid("Expected more", "inputs")) == "inputs: Expected more"
    assert str(invalid("Expected more")) == "Expected more"
    assert invalid("Expected more").kind is ErrorKind.INVALID_REQUEST


def test_kinds_read_as_words_in_logs_and_metrics() -> None:
    assert len({kind.value for kind in ErrorKind}) == len(ErrorKind) == 12
    assert all(kind.value == kind.name.lower() for kind in ErrorKind)


def test_long_messages_and_paths_are_cut() -> None:
    error = invalid("m" * 1_000_000, "p" * 1_000_000).under("inputs[0]")
    assert error.message == "m" * 2000 + "..."
    assert error.path.startswith("inputs[0].ppp")
    assert len(str(error)) < 3100
    assert error.args == (error.message,)
