"""Results of each part of a query, in SQLite and PostgreSQL."""

import json

from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.store import Store, parse_dsn
from tests.support.data.recorded_rows import ALL_IDS, DIGEST, Value, matching_ids, metadata_entry, recorded_rows

WHERE = {
    'camera = "north"': {"north", "both"},
    "camera='north'": {"north", "both"},
    'camera < "o"': {"north", "both", "odd"},
    'camera >= "o"': {"south"},
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
    r'"camera" = "50%_off\u0027; DROP TABLE recordings; --"': {"odd"},
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
    (InferenceQuery(since="999999999w"), set(ALL_IDS)),
    (InferenceQuery(until="999999999w"), set[str]()),
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


def test_conditions_find_unusual_keys_and_texts_but_nothing_inside_a_dict(store: Store, url: str) -> None:
    text = 'ß "quoted" \\ 50%_\n[a]'
    inside: Value = {
        "x": {"key": "camera", "type": "str", "value": "north"},
        "y": {"key": "f", "type": "int", "value": "1x"},
    }
    store.write([
        recorded_rows("odd", {text: text, "empty": ""}),
        recorded_rows("nested", {"d": inside, "f": 7, "camera": "gate"}),
        recorded_rows("repeated", [metadata_entry("f", number) for number in (1, 50)]),
    ])  # fmt: skip
    reader, quoted = RecordingReader(parse_dsn(url)), json.dumps(text)
    found = {
        f"{quoted} = {quoted}": {"odd"},
        'empty = ""': {"odd"},
        'empty < "a"': {"odd"},
        'camera = "north"': set[str](),
        "f < 7.5 and f > 6.5": {"nested"},
        "f < 2": {"repeated"},
        "f > 49": set[str](),
    }
    assert {text: matching_ids(reader, InferenceQuery(where=[text])) for text in found} == found
