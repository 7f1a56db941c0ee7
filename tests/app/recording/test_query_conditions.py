"""Results of each part of a query, in SQLite and PostgreSQL."""

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.recording.dsn import parse_dsn
from app.recording.query.conditions import Condition, Operator, Scalar
from app.recording.query.query import InferenceQuery, QueryText
from app.recording.query.reader import RecordingReader
from app.recording.sqlite_store import SqliteStore
from app.recording.store import Store
from tests.support.recorded_rows import ALL_IDS, ALL_ROWS, DIGEST, Value, inference_ids, matching_ids, recorded_rows


@pytest.fixture
def reader(store: Store, url: str) -> Iterator[RecordingReader]:
    """Return a reader of a store with every kind of inference."""
    store.write(ALL_ROWS)
    reader = RecordingReader(parse_dsn(url))
    yield reader
    reader.close()


WHERE = {
    'camera = "north"': {"north", "both"},
    'camera != "north"': {"south", "odd"},
    'camera < "o"': {"north", "both", "odd"},
    'camera >= "o"': {"south", "both"},
    'camera in ("south", "west", 3)': {"south", "both"},
    'camera contains "ort"': {"north", "both"},
    'camera contains "%_"': {"odd"},
    'camera contains "ORT"': set[str](),
    'camera = "north" and camera = "south"': {"both"},
    "frame = 3": {"north"},
    "frame = 3.0": {"north"},
    'frame = "3"': {"late"},
    "frame != 3": {"south", "both", "odd", "late"},
    "frame > 3": {"south", "both"},
    "frame >= 3.5": {"south", "both"},
    "frame > 3.5": {"south", "both"},
    "frame < 3.5": {"north", "odd"},
    "frame <= -1.5": {"odd"},
    "frame:int < 100": {"north", "south"},
    "frame:float < 100": {"odd"},
    "frame:int != 3": {"south", "both"},
    "frame in (3, -1.5)": {"north", "odd"},
    "frame = 9223372036854775807": {"both"},
    "frame > 1e300": set[str](),
    "frame < 1e300": {"north", "south", "both", "odd"},
    "frame > -1e300": {"north", "south", "both", "odd"},
    "frame < -1e300": set[str](),
    "frame = 1e300": set[str](),
    "blur = 3": {"south"},
    "blur < 1": {"north"},
    "blur:int < 1": set[str](),
    '"a.b" = "flat"': {"odd"},
    "a.b = 1": set[str](),
    "pose.yaw = 1.5": {"pose"},
    'pose.yaw = "1.5"': {"flat"},
    "pose.yaw != 1.5": {"flat"},
    "pose.yaw > 1": {"pose"},
    "pose.yaw in (1, 1.5)": {"pose"},
    'pose.yaw in (1.5, "1.5")': {"pose", "flat"},
    "pose.valid = true": {"pose"},
    "pose.valid = 1": set[str](),
    "pose.valid != true": {"flat"},
    'pose.name = "héron"': {"pose"},
    'pose.name > "a"': {"pose"},
    'pose.name contains "ron"': {"pose", "flat"},
    'pose.tags contains "a"': {"pose", "flat"},
    "pose.tags contains 2": {"pose"},
    "pose.tags contains 1": set[str](),
    "pose.tags contains true": {"pose"},
    "pose.in.ner = 7": {"pose"},
    "pose.in = 7": {"flat"},
    'pose.in contains "ner"': {"pose"},
    'pose contains "yaw"': {"pose", "flat"},
    'pose contains "none"': {"pose"},
    'pose:str contains "yaw"': set[str](),
    "pose.none = 0": set[str](),
    'pose.missing != "x"': {"pose", "flat"},
    'camera = "\' OR 1=1 --"': set[str](),
    'pose."\') OR 1=1 --" = 1': set[str](),
}

QUERIES = [
    (QueryText(), set(ALL_IDS)),
    (QueryText(model="other"), {"both", "failed"}),
    (QueryText(model="other' OR '1'='1"), set[str]()),
    (QueryText(protocol="grps"), {"pose"}),
    (QueryText(task_type="IMAGE_CLASSIFICATION"), {"pose"}),
    (QueryText(request_id="rq-7"), {"failed"}),
    (QueryText(base_id="chariot-1"), {"late"}),
    (QueryText(digest=DIGEST), {"unsure"}),
    (QueryText(error="any"), {"late", "failed"}),
    (QueryText(error="none"), set(ALL_IDS) - {"late", "failed"}),
    (QueryText(error="model_failed"), {"failed"}),
    (QueryText(error="internal"), set[str]()),
    (QueryText(label="car"), {"north", "south", "both"}),
    (QueryText(label="dog"), {"both", "unsure"}),
    (QueryText(label="car", min_score=0.4), {"north", "south"}),
    (QueryText(label="car", max_score=0.4), {"south", "both"}),
    (QueryText(label="car", min_score=0.3, max_score=0.5), {"south"}),
    (QueryText(min_score=0.9), {"north", "both"}),
    (QueryText(max_score=0.5), {"south", "unsure"}),
    (QueryText(since="1970-01-01T00:00:20Z"), {"south", "both", "odd"}),
    (QueryText(since="1970-01-01T00:00:10Z", until="1970-01-01T00:00:30Z"), {"north", "south"}),
    (QueryText(since="70s", label="dog"), {"both"}),
    (QueryText(since="1970-01-02"), set[str]()),
    (QueryText(model="other", error="any", where=[]), {"failed"}),
    (QueryText(model="detector", label="car", where=['camera = "south"', "frame > 1"]), {"south"}),
]


def test_each_condition_matches_the_expected_inferences(reader: RecordingReader) -> None:
    wrong = {
        text: (sorted(actual), sorted(expected))
        for text, expected in WHERE.items()
        if (actual := matching_ids(reader, QueryText(where=[text]))) != expected
    }
    assert not wrong


def test_each_query_field_matches_the_expected_inferences(reader: RecordingReader) -> None:
    wrong = [
        (text, sorted(actual), sorted(expected))
        for text, expected in QUERIES
        if (actual := matching_ids(reader, text)) != expected
    ]
    assert not wrong


_keys = st.sampled_from(("a", "b"))
_scalars = st.sampled_from(("x", "xy", "Y", 1, 2, -1, 1.0, 1.5, 2**53, -(2**63)))
_operators = st.sampled_from([op for op in Operator if op is not Operator.CONTAINS])


@pytest.fixture(scope="module")
def mixed(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RecordingReader, Mapping[str, Mapping[str, Value]]]]:
    """Return a reader of a store with every pair of values under two keys, and the stored metadata."""
    values: list[Value | None] = [None, "x", "xy", "Y", 1, 2, -1, 1.0, 1.5, 2**53, -(2**63)]
    stored = {
        f"{first} {second}": {key: value for key, value in (("a", first), ("b", second)) if value is not None}
        for first in values
        for second in values
    }
    file = tmp_path_factory.mktemp("mixed") / "store.db"
    store = SqliteStore(file)
    store.open()
    store.write([recorded_rows(name, metadata) for name, metadata in stored.items()])
    store.close()
    reader = RecordingReader(parse_dsn(str(file)))
    yield reader, stored
    reader.close()


@settings(max_examples=40)
@given(st.lists(st.tuples(_keys, _operators, st.lists(_scalars, min_size=1, max_size=3)), min_size=1, max_size=3))
def test_conditions_agree_with_python_operators(
    mixed: tuple[RecordingReader, Mapping[str, Mapping[str, Value]]], drawn: list[tuple[str, Operator, list[Scalar]]]
) -> None:
    reader, stored = mixed
    conditions = [
        Condition(key=key, operator=op, values=tuple(values if op is Operator.IN else values[:1]))
        for key, op, values in drawn
    ]
    expected = {
        name for name, metadata in stored.items() if all(_meets(metadata, condition) for condition in conditions)
    }
    page = reader.page(InferenceQuery(conditions=conditions), len(stored))
    assert set(inference_ids(page.inferences)) == expected


_COMPARED: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}


def _meets(metadata: Mapping[str, Value], condition: Condition) -> bool:
    if condition.key not in metadata:
        return False
    value, operands = metadata[condition.key], condition.values
    if condition.operator is Operator.NOT_EQUAL:
        return value != operands[0]
    if condition.operator in _COMPARED:
        return isinstance(value, str) == isinstance(operands[0], str) and _COMPARED[condition.operator](
            value, operands[0]
        )
    return value in operands
