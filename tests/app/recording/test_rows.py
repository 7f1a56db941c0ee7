"""What a datum is found by."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.recording import rows, tables
from app.recording.rows import LabelRow, MetadataRow, label_rows, metadata_rows, position
from metadata.entry import MetadataEntry
from tasks.image_classification import LabelledScore


class Labelled(msgspec.Struct):
    label: str


@pytest.mark.parametrize(
    ("row", "table"),
    [(rows.InferenceRow, tables.inferences), (rows.MetadataRow, tables.metadata), (rows.LabelRow, tables.labels)],
)
def test_rows_are_in_the_order_of_the_columns(row: Any, table: Any) -> None:
    columns = [column.name for column in table.columns]
    assert ["number", *row._fields] == [name.replace("count", "times") for name in columns]


def test_each_value_stands_in_the_column_of_its_type() -> None:
    entries = [
        MetadataEntry("s", "str", "x"),
        MetadataEntry("i", "int", -7),
        MetadataEntry("f", "float", 0.5),
        MetadataEntry("d", "dict", {"a": [1]}),
    ]
    assert metadata_rows(entries) == [
        MetadataRow(0, "s", tv="x"),
        MetadataRow(1, "i", iv=-7),
        MetadataRow(2, "f", fv=0.5),
        MetadataRow(3, "d", jv='{"a":[1]}'),
    ]


@pytest.mark.parametrize(
    ("value", "iv", "fv"),
    [(2**63 - 1, 2**63 - 1, None), (2**63, None, 2.0**63), (-(2**63), -(2**63), None), (-(2**70), None, -(2.0**70))],
)
def test_an_integer_without_room_is_a_float(value: int, iv: int | None, fv: float | None) -> None:
    assert metadata_rows([MetadataEntry("k", "int", value)]) == [MetadataRow(0, "k", iv=iv, fv=fv)]


def test_what_no_filter_could_read_has_no_row() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"in": deep}
    entries = [
        MetadataEntry("huge", "int", 10**400),
        MetadataEntry("deep", "dict", deep),
        MetadataEntry("a", "str", ""),
    ]
    assert metadata_rows(entries) == [MetadataRow(2, "a", tv="")]


def test_texts_are_cut_and_rows_are_counted() -> None:
    entries = [MetadataEntry("k" * 1000, "str", "v" * 1000)] * 1000
    found = metadata_rows(entries)
    assert len(found) == 256
    assert found[0] == MetadataRow(0, "k" * 400, tv="v" * 400)


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_no_document_has_a_nul(value: Any) -> None:
    found = metadata_rows([MetadataEntry("k", "dict", {"value": value})])
    for row in found:
        assert row.jv is not None
        assert "\0" not in json.dumps(json.loads(row.jv), ensure_ascii=False)


def test_a_label_has_its_best_score_and_its_count() -> None:
    records = [LabelledScore("ship", 0.3), LabelledScore("quay", 0.5), LabelledScore("ship", 0.8)]
    assert sorted(label_rows(records)) == [LabelRow("quay", 0.5, 1), LabelRow("ship", 0.8, 2)]


def test_a_label_may_have_no_score() -> None:
    assert label_rows([Labelled("sky"), Labelled("sky"), "no record"]) == [LabelRow("sky", None, 2)]
    assert label_rows([LabelledScore("sky", float("nan"))]) == [LabelRow("sky", None, 1)]


def test_of_a_thousand_classes_the_likely_ones_are_found() -> None:
    records = [LabelledScore(f"class {place}", place / 1000) for place in range(1000)]
    found = {row.label: row.score for row in label_rows(records)}
    assert found == {f"class {place}": place / 1000 for place in range(984, 1000)}
    assert [row.label for row in label_rows(records[:12])] == ["class 11", "class 10"]


def test_of_labels_that_begin_alike_the_best_stays() -> None:
    long = "x" * 400
    assert label_rows([LabelledScore(long + "a", 0.9), LabelledScore(long + "b", 0.5)]) == [LabelRow(long, 0.9, 1)]


@pytest.mark.parametrize(
    ("latitude", "longitude", "found"),
    [
        (51.5, -0.1, (51.5, -0.1)),
        (51, 0, (51.0, 0.0)),
        ("51.5", "-0.1", (51.5, -0.1)),
        (90.0, -180.0, (90.0, -180.0)),
        (90.1, 0.0, (None, None)),
        (0.0, 180.5, (None, None)),
        ("north", 0.0, (None, None)),
        ("nan", 0.0, (None, None)),
        (None, 0.0, (None, None)),
        ({"deg": 1}, 0.0, (None, None)),
    ],
)
def test_a_position_is_two_numbers_in_range(latitude: Any, longitude: Any, found: Any) -> None:
    entries = [MetadataEntry("longitude", "?", longitude), MetadataEntry("latitude", "?", latitude)]
    assert position(entries) == found
