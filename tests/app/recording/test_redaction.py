"""What an operator does not want to be recorded."""

import msgspec

from app.recording.redaction import REDACTED, Redaction
from metadata.entry import MetadataEntry


def test_keys_are_found_however_deep_and_in_any_case() -> None:
    value = {"Owner": "Ada", "pose": [{"owner": {"name": "Ada"}, "yaw": 1.5}], "raw": msgspec.Raw(b'{"OWNER": 1}')}
    assert Redaction(["owner"]).value(value) == {
        "Owner": REDACTED,
        "pose": [{"owner": REDACTED, "yaw": 1.5}],
        "raw": {"OWNER": REDACTED},
    }


def test_an_entry_loses_its_value_and_its_type() -> None:
    entries = [MetadataEntry("plate", "int", 42), MetadataEntry("car", "dict", {"plate": "AB", "doors": 5})]
    assert Redaction(["plate"]).entries(entries) == [
        MetadataEntry("plate", "str", REDACTED),
        MetadataEntry("car", "dict", {"plate": REDACTED, "doors": 5}),
    ]


def test_what_lies_too_deep_to_be_looked_into_is_replaced() -> None:
    deep: object = {"plate": "AB 12"}
    for _ in range(900):
        deep = {"a": [deep]}
    said = str(Redaction(["plate"]).value(deep))
    assert REDACTED in said
    assert "AB 12" not in said


def test_a_message_that_names_a_key_may_quote_it() -> None:
    redaction = Redaction(["plate"])
    assert redaction.message("inputs[0].parameters.Plate: Expected a number, got 'AB 12'") == REDACTED
    assert redaction.message("Model 'x' is not known") == "Model 'x' is not known"


def test_nothing_is_changed_without_keys() -> None:
    assert not Redaction([])
    assert Redaction([]).value({"a": [1, "b", None]}) == {"a": [1, "b", None]}
