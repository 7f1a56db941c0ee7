"""Redaction of values that must not be recorded."""

import msgspec

from app.plugins.recording.row_converter import REDACTED, Redaction
from metadata.request import MetadataEntry


def test_keys_match_at_any_depth_and_in_any_case() -> None:
    value = {"Owner": "Ada", "pose": [{"owner": {"name": "Ada"}, "yaw": 1.5}], "raw": msgspec.Raw(b'{"OWNER": 1}')}
    assert Redaction(["owner"]).value(value) == {
        "Owner": REDACTED,
        "pose": [{"owner": REDACTED, "yaw": 1.5}],
        "raw": {"OWNER": REDACTED},
    }


def test_redacted_entry_loses_its_value_and_type() -> None:
    entries = [MetadataEntry("plate", "int", 42), MetadataEntry("car", "dict", {"plate": "AB", "doors": 5})]
    assert Redaction(["plate"]).entries(entries) == [
        MetadataEntry("plate", "str", REDACTED),
        MetadataEntry("car", "dict", {"plate": REDACTED, "doors": 5}),
    ]


def test_value_too_deep_to_search_is_replaced() -> None:
    deep: object = {"plate": "AB 12"}
    for _ in range(900):
        deep = {"a": [deep]}
    redacted = str(Redaction(["plate"]).value(deep))
    assert REDACTED in redacted
    assert "AB 12" not in redacted


def test_message_that_names_a_redacted_key_is_replaced() -> None:
    redaction = Redaction(["plate"])
    assert redaction.message("inputs[0].parameters.Plate: Expected a number, got 'AB 12'") == REDACTED
    assert redaction.message("Model 'x' is not known") == "Model 'x' is not known"
