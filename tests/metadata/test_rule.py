"""What an output's parameters say."""

import msgspec
import pytest

from metadata.rule import annotate


def shown(value: object) -> str:
    """A name for a case that is the same in every process, as that of a `msgspec.Raw` is not."""
    return f"Raw {bytes(value)!r}" if isinstance(value, msgspec.Raw) else repr(value)


@pytest.mark.parametrize("value", ["{", "", None, 5, {"a": [1]}, [], msgspec.Raw(b'{"a" : 1.0}')], ids=shown)
def test_metadata_is_returned_as_the_very_object_that_came(value: object) -> None:
    annotated = annotate({"action": "predict", "metadata": value, "top_k": 5})
    assert list(annotated) == ["metadata"]
    assert annotated["metadata"] is value


@pytest.mark.parametrize(
    "parameters", [{}, {"action": "predict"}, {"Metadata": "x"}, {"standard_metadata": {}}], ids=str
)
def test_nothing_is_said_where_nothing_came(parameters: dict[str, object]) -> None:
    assert annotate(parameters) == {}


def test_the_inputs_own_parameters_are_not_changed() -> None:
    parameters: dict[str, object] = {"metadata": "x", "action": "y"}
    annotate(parameters)
    assert parameters == {"metadata": "x", "action": "y"}
