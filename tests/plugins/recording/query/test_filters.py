"""Results of each part of a query, and of SQL that users write over the views, in SQLite and PostgreSQL."""

from datetime import UTC, datetime

import pytest

from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.store import Store, parse_dsn
from tasks.inference.error import InferenceError
from tests.plugins.recording.contents import contents
from tests.support.data.recorded_rows import ALL_IDS, DIGEST, inference_ids, matching_ids, recorded_rows

WHERE = {
    'camera = "north"': {"north", "both"},
    "camera='north'": {"north", "both"},
    'camera < "o"': {"north", "both", "odd"},
    'camera >= "o"': {"south", "both"},
    'camera = "north" and camera = "south"': {"both"},
    'camera = "north"AND"frame"<100': {"north"},
    "frame = 3": {"north"},
    "frame = 3.0": {"north"},
    'frame = "3"': {"late"},
    "frame > 3": {"south", "both"},
    "frame >= 3": {"north", "south", "both"},
    "frame >= 3.5": {"south", "both"},
    "frame > 3.5": {"south", "both"},
    "frame < 3": {"odd"},
    "frame <= 3": {"north", "odd"},
    "frame < 3.5": {"north", "odd"},
    "frame <= -1.5": {"odd"},
    "frame = 9223372036854775807": {"both"},
    "frame > 1e300": set[str](),
    "frame < 1e300": {"north", "south", "both", "odd"},
    "frame > -1e300": {"north", "south", "both", "odd"},
    "frame < -1e300": set[str](),
    "frame = 1e300": set[str](),
    "frame < 36893488147419103232": {"north", "south", "both", "odd"},
    "frame < -1.5": set[str](),
    "frame > -1.5": {"north", "south", "both"},
    "blur = 3": {"south"},
    "blur >= 3": {"south"},
    "blur < 1": {"north"},
    '"a.b" = "flat"': {"odd"},
    r'"camera" = "50%_off\u0027; DROP TABLE inferences; --"': {"odd"},
    'camera = "\' OR 1=1 --"': set[str](),
    " and ".join(["frame > 0"] * 31) + ' and camera = "north"': {"north", "both"},
}

QUERIES = [
    (InferenceQuery(), set(ALL_IDS)),
    (InferenceQuery(model="other"), {"both", "failed"}),
    (InferenceQuery(model="other' OR '1'='1"), set[str]()),
    (InferenceQuery(protocol="grps"), {"pose"}),
    (InferenceQuery(task_type="IMAGE_CLASSIFICATION"), {"pose"}),
    (InferenceQuery(request_id="rq-7"), {"failed"}),
    (InferenceQuery(base_id="chariot-1"), {"late"}),
    (InferenceQuery(digest=DIGEST), {"unsure"}),
    (InferenceQuery(digest=DIGEST.upper()), {"unsure"}),
    (InferenceQuery(error="any"), {"late", "failed"}),
    (InferenceQuery(error="none"), set(ALL_IDS) - {"late", "failed"}),
    (InferenceQuery(error="model_failed"), {"failed"}),
    (InferenceQuery(error="internal"), set[str]()),
    (InferenceQuery(label="car"), {"north", "south", "both"}),
    (InferenceQuery(label="dog"), {"both", "unsure"}),
    (InferenceQuery(label="car", min_score=0.4), {"north", "south"}),
    (InferenceQuery(label="car", max_score=0.4), {"south", "both"}),
    (InferenceQuery(label="car", min_score=0.3, max_score=0.5), {"south"}),
    (InferenceQuery(min_score=0.9), {"north", "both"}),
    (InferenceQuery(max_score=0.5), {"south", "unsure"}),
    (InferenceQuery(since="1970-01-01T00:00:20Z"), {"south", "both", "odd"}),
    (InferenceQuery(since="1970-01-01T00:00:10Z", until="1970-01-01T00:00:30Z"), {"north", "south"}),
    (InferenceQuery(since="1970-01-01T00:00:30Z", label="dog"), {"both"}),
    (InferenceQuery(since="4w"), set[str]()),
    (InferenceQuery(until="2h", model="other"), {"both", "failed"}),
    (InferenceQuery(model_version="1", model="other"), {"both", "failed"}),
    (InferenceQuery(model_version="2"), set[str]()),
    (InferenceQuery(since="1970-01-02"), set[str]()),
    (InferenceQuery(model="other", error="any", where=[]), {"failed"}),
    (InferenceQuery(model="detector", label="car", where=['camera = "south"', "frame > 1"]), {"south"}),
]


def test_each_query_matches_the_expected_inferences(reader: RecordingReader) -> None:
    queries = [*((InferenceQuery(where=[text]), expected) for text, expected in WHERE.items()), *QUERIES]
    found = [(query, matching_ids(reader, query), expected) for query, expected in queries]
    assert [(query, actual, expected) for query, actual, expected in found if actual != expected] == []


PLACES = {"munich": (48.14, 11.58), "suva": (-18.14, 178.44), "apia": (-13.83, -171.76)}

BOXES = {
    "48,11,49,12": {"munich"},
    "48.14,11.58,48.14,11.58": {"munich"},
    "-20,170,-10,-170": {"suva", "apia"},
    "-20,170,-10,180": {"suva"},
    "-90,-180,90,180": set(PLACES),
    "0,0,1,1": set[str](),
}


def test_box_matches_the_expected_places(store: Store, url: str) -> None:
    store.write([recorded_rows(name, {"latitude": place[0], "longitude": place[1]}) for name, place in PLACES.items()])
    store.write([recorded_rows("nowhere"), recorded_rows("out of range", {"latitude": 99.0, "longitude": 0.0})])
    reader = RecordingReader(parse_dsn(url))
    assert {box: matching_ids(reader, InferenceQuery(box=box)) for box in BOXES} == BOXES
    eastern = InferenceQuery(box="-20,170,-10,-170", where=["longitude > 0"])
    assert matching_ids(reader, eastern) == {"suva"}


def ids(reader: RecordingReader, condition: str) -> set[str]:
    sql = f"SELECT id FROM recorded JOIN recorded_metadata USING (number) WHERE {condition}"
    return {row[0] for row in reader.sql(sql).rows}


CONDITIONS = {
    "key = 'camera' AND text_value IN ('south', 'west')": {"south", "both"},
    "key = 'camera' AND text_value LIKE '%ort%'": {"north", "both"},
    "key = 'frame' AND int_value <> 3": {"south", "both"},
    "key = 'frame' AND float_value < 100": {"odd"},
    "key = 'camera' AND text_value <> 'north' AND number NOT IN"
    " (SELECT number FROM recorded_metadata WHERE key = 'camera' AND text_value = 'north')": {"south", "odd"},
    "key = 'pose' AND dict_value IS NOT NULL": {"pose", "flat"},
}
MEMBERS = {"sqlite": "json_extract(dict_value, '$.yaw') = 1.5", "postgresql": "(dict_value -> 'yaw')::text = '1.5'"}


def test_sql_expresses_conditions_that_filters_do_not(reader: RecordingReader, filled_url: str) -> None:
    assert {condition: ids(reader, condition) for condition in CONDITIONS} == CONDITIONS
    assert ids(reader, f"key = 'pose' AND {MEMBERS[parse_dsn(filled_url).dialect]}") == {"pose"}


def test_views_read_documents_with_an_escaped_nul(store: Store, url: str) -> None:
    store.write([recorded_rows("nul", parameters=r'{"a\u0000":"b\u0000","c":5}', records=[{"label": "d\0"}])])
    reader = RecordingReader(parse_dsn(url))
    ((parameters, records),) = reader.sql("SELECT parameters, records FROM recorded").rows
    assert "5" in str(parameters)
    assert "label" in str(records)


def test_circle_of_the_documentation_is_found_with_a_box_and_the_haversine(store: Store, url: str) -> None:
    store.write([recorded_rows(name, {"latitude": place[0], "longitude": place[1]}) for name, place in PLACES.items()])
    within_50_km = (
        "latitude BETWEEN 47.6 AND 48.6 AND 12742 * asin(sqrt(power(sin(radians(latitude - 48.1) / 2), 2)"
        " + cos(radians(48.1)) * cos(radians(latitude)) * power(sin(radians(longitude - 11.6) / 2), 2))) <= 50"
    )
    found = RecordingReader(parse_dsn(url)).sql(f"SELECT id FROM recorded WHERE {within_50_km}").rows
    assert [row[0] for row in found] == ["munich"]


def test_views_have_times_labels_and_counts(reader: RecordingReader) -> None:
    result = reader.sql("SELECT time, milliseconds FROM recorded WHERE id = 'north';")
    assert result.columns == ["time", "milliseconds"]
    ((time, milliseconds),) = result.rows
    moment = time if isinstance(time, datetime) else datetime.fromisoformat(time)
    assert moment == datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC)
    assert float(milliseconds) == 2.5
    counted = "SELECT label, count(*) AS inferences, max(score) FROM recorded_labels GROUP BY label ORDER BY label"
    assert [tuple(row) for row in reader.sql(counted).rows] == [("car", 3, 0.9), ("cat", 1, 0.1), ("dog", 2, 0.95)]
    assert len(reader.sql(counted, 2).rows) == 2


def test_statement_may_have_its_own_with_comment_and_colons(reader: RecordingReader) -> None:
    sql = "WITH slow AS (SELECT id FROM recorded WHERE id <> ':name') SELECT count(*) FROM slow -- all"
    assert reader.sql(sql).rows[0][0] == len(ALL_IDS)


def test_inferences_are_fetched_by_the_ids_of_a_result(reader: RecordingReader) -> None:
    (batch,) = reader.batches_of(["south", "north", "missing"])
    assert inference_ids(batch) == ["south", "north"]


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM inferences",
        "SELECT 1) AS a; DELETE FROM inferences; SELECT * FROM (SELECT 1",
        "WITH gone AS (DELETE FROM inferences RETURNING id) SELECT * FROM gone",
        "PRAGMA query_only = OFF",
        "ATTACH 'other.db' AS other",
        "UPDATE inferences SET model = 'x' RETURNING id",
        "SELECT * FROM nowhere",
    ],
)
def test_sql_that_is_no_select_is_rejected(reader: RecordingReader, filled_url: str, sql: str) -> None:
    with pytest.raises(InferenceError, match=r"^--sql: Expected one SELECT over recorded, .*: "):
        reader.sql(sql)
    assert matching_ids(reader, InferenceQuery()) == set(ALL_IDS)
    assert len(contents(filled_url)) == len(ALL_IDS)
