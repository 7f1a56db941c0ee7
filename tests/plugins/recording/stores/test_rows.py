"""Rows that queries search: metadata, labels and positions."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.plugins.recording.inference import RecordedInference
from app.plugins.recording.stores.rows import LabelRow, MetadataRow, label_rows, metadata_rows, to_rows
from metadata.request import MetadataEntry
from tasks.image_classification import LabelledScore
from tasks.token_classification import Entity


class Labelled(msgspec.Struct):
    label: str


@pytest.mark.parametrize(
    ("value", "iv", "fv"),
    [(2**63 - 1, 2**63 - 1, None), (2**63, None, 2.0**63), (-(2**63), -(2**63), None), (-(2**70), None, -(2.0**70))],
)
def test_integer_above_64_bits_is_stored_as_float(value: int, iv: int | None, fv: float | None) -> None:
    assert metadata_rows([MetadataEntry("k", "int", value)]) == [MetadataRow(0, "k", iv=iv, fv=fv)]


def test_unfilterable_values_have_no_row() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"in": deep}
    huge = MetadataEntry("huge", "int", 10**400)
    entries = [huge, MetadataEntry("deep", "dict", deep), MetadataEntry("a", "str", "")]
    assert metadata_rows(entries) == [MetadataRow(2, "a", tv="")]


def test_texts_are_truncated_and_number_of_rows_is_limited() -> None:
    entries = [MetadataEntry("k" * 1000, "str", "v" * 1000)] * 1000
    stored = metadata_rows(entries)
    assert len(stored) == 256
    assert stored[0] == MetadataRow(0, "k" * 400, tv="v" * 400)


_texts = st.text("\0\\u0a", max_size=8)


@given(st.recursive(_texts, lambda inner: st.lists(inner) | st.dictionaries(_texts, inner), max_leaves=5))
def test_document_never_contains_null_character(value: Any) -> None:
    stored = metadata_rows([MetadataEntry("k", "dict", {"value": value})])
    for row in stored:
        assert row.jv is not None
        assert "\0" not in json.dumps(json.loads(row.jv), ensure_ascii=False)


def test_label_row_has_best_score_and_count() -> None:
    records = [LabelledScore("ship", 0.3), LabelledScore("quay", 0.5), LabelledScore("ship", 0.8)]
    assert sorted(label_rows(records)) == [LabelRow("quay", 0.5, 1), LabelRow("ship", 0.8, 2)]


def test_label_of_an_entity_is_its_group() -> None:
    entity = {"entity_group": "PER", "score": 0.5, "word": "Ann", "start": 0, "end": 3}
    assert label_rows([entity, Entity("PER", 0.75, "Bo", 4, 6)]) == [LabelRow("PER", 0.75, 2)]


def test_label_row_can_have_no_score() -> None:
    assert label_rows([Labelled("sky"), Labelled("sky"), "no record"]) == [LabelRow("sky", None, 2)]
    assert label_rows([LabelledScore("sky", float("nan"))]) == [LabelRow("sky", None, 1)]
    assert label_rows([{"label": "sky", "score": 1}]) == [LabelRow("sky", 1.0, 1)]


def test_only_likeliest_classes_have_label_rows() -> None:
    records = [LabelledScore(f"class {index}", index / 1000) for index in range(1000)]
    scores = {row.label: row.score for row in label_rows(records)}
    assert scores == {f"class {index}": index / 1000 for index in range(984, 1000)}
    assert [row.label for row in label_rows(records[:12])] == ["class 11", "class 10"]


def test_labels_with_same_prefix_keep_best_score() -> None:
    long = "x" * 400
    assert label_rows([LabelledScore(long + "a", 0.9), LabelledScore(long + "b", 0.5)]) == [LabelRow(long, 0.9, 1)]


@pytest.mark.parametrize(
    ("latitude", "longitude", "expected"),
    [
        (51, 0, (51.0, 0.0)),
        ("51.5", "-0.1", (51.5, -0.1)),
        (90.0, -180.0, (90.0, -180.0)),
        (0.0, 180.5, (None, None)),
        *((latitude, 0.0, (None, None)) for latitude in (90.1, "north", "nan", None, {"deg": 1})),
    ],
)
def test_position_needs_two_numbers_in_range(latitude: Any, longitude: Any, expected: Any) -> None:
    entries = [MetadataEntry("longitude", "?", longitude), MetadataEntry("latitude", "?", latitude)]
    inference = RecordedInference(id="a", protocol="v2", model="detector", started=0, duration=0, metadata=entries)
    row = to_rows(inference).inference
    assert (row["latitude"], row["longitude"]) == expected
