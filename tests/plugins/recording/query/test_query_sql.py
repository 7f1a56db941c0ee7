"""SQL of users over the views, in SQLite and PostgreSQL: what filters cannot express, and attempts to write."""

from datetime import UTC, datetime

import pytest

from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.store import Store, parse_dsn
from tasks.inference.error import InferenceError
from tests.plugins.recording.contents import contents
from tests.support.data.recorded_rows import ALL_IDS, inference_ids, matching_ids, recorded_rows


def ids(
    reader: RecordingReader, condition: str, view: str = "recorded JOIN recorded_metadata USING (number)"
) -> set[str]:
    return {row[0] for row in reader.sql(f"SELECT id FROM {view} WHERE {condition}").rows}


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


def test_circle_is_found_with_a_box_and_the_haversine(store: Store, url: str) -> None:
    places = {"munich": (48.14, 11.58), "freising": (48.40, 11.75), "berlin": (52.52, 13.40)}
    store.write([recorded_rows(name, {"latitude": place[0], "longitude": place[1]}) for name, place in places.items()])
    within_50_km = (
        "latitude BETWEEN 47.6 AND 48.6 AND 12742 * asin(sqrt(power(sin(radians(latitude - 48.1) / 2), 2)"
        " + cos(radians(48.1)) * cos(radians(latitude)) * power(sin(radians(longitude - 11.6) / 2), 2))) <= 50"
    )
    assert ids(RecordingReader(parse_dsn(url)), within_50_km, "recorded") == {"munich", "freising"}


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
    with pytest.raises(InferenceError, match="cannot be read"):
        reader.sql(sql)
    assert matching_ids(reader, InferenceQuery()) == set(ALL_IDS)
    assert len(contents(filled_url)) == len(ALL_IDS)
