"""Parameters of an output."""

import msgspec
import pytest

from metadata.request import output_parameters


def case_id(value: object) -> str:
    """Return a test id that is the same in every process, unlike the `repr` of a `msgspec.Raw`."""
    return f"Raw {bytes(value)!r}" if isinstance(value, msgspec.Raw) else repr(value)


@pytest.mark.parametrize("value", ["{", "", None, 5, {"a": [1]}, [], msgspec.Raw(b'{"a" : 1.0}')], ids=case_id)
def test_metadata_is_returned_as_the_same_object(value: object) -> None:
    copied = output_parameters({"action": "predict", "metadata": value, "top_k": 5})
    assert list(copied) == ["metadata"]
    assert copied["metadata"] is value


@pytest.mark.parametrize(
    "parameters", [{}, {"action": "predict"}, {"Metadata": "x"}, {"standard_metadata": {}}], ids=str
)
def test_output_has_no_parameters_without_metadata(parameters: dict[str, object]) -> None:
    assert output_parameters(parameters) == {}


def test_parameters_of_the_input_are_not_changed() -> None:
    parameters: dict[str, object] = {"metadata": "x", "action": "y"}
    output_parameters(parameters)
    assert parameters == {"metadata": "x", "action": "y"}
