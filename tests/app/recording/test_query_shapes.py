"""Queries by location, in SQLite and PostgreSQL."""

from app.recording.dsn import parse_dsn
from app.recording.query.query import QueryText
from app.recording.query.reader import RecordingReader
from app.recording.store import Store
from tests.support.recorded_rows import matching_ids, recorded_rows


def test_geographic_queries_match_the_expected_places(store: Store, url: str) -> None:
    places = {
        "munich": (48.14, 11.58),
        "freising": (48.40, 11.75),
        "berlin": (52.52, 13.40),
        "suva": (-18.14, 178.44),
        "apia": (-13.83, -171.76),
        "date line": (-18.0, 180.0),
        "other side": (-18.0, -180.0),
        "pole": (90.0, 45.0),
    }
    store.write([recorded_rows(name, {"latitude": place[0], "longitude": place[1]}) for name, place in places.items()])
    store.write([recorded_rows("nowhere"), recorded_rows("out of range", {"latitude": 99.0, "longitude": 0.0})])
    fiji = '{"type":"Polygon","coordinates":[[[175,-20],[185,-20],[185,-10],[175,-10],[175,-20]]]}'
    bavaria = "47,10 47,14 50,14 50,10"
    around_munich = (
        '{"type":"Polygon","coordinates":[[[10,47],[14,47],[14,50],[10,50]],[[11,48],[12,48],[12,48.2],[11,48.2]]]}'
    )
    expected = [
        (QueryText(near="48.1,11.6,50"), {"munich", "freising"}),
        (QueryText(near="48.14,11.58,0"), {"munich"}),
        (QueryText(near="-18,179.9,200"), {"suva", "date line", "other side"}),
        (QueryText(near="89,-100,120"), {"pole"}),
        (QueryText(near="0,0,20100"), set(places)),
        (QueryText(box="-20,170,-10,-170"), {"suva", "apia", "date line", "other side"}),
        (QueryText(box="-20,170,-10,180"), {"suva", "date line", "other side"}),
        (QueryText(box="80,0,90,10"), {"pole"}),
        (QueryText(polygon=bavaria), {"munich", "freising"}),
        (QueryText(polygon=around_munich), {"freising"}),
        (QueryText(polygon=fiji), {"suva", "date line", "other side"}),
        (QueryText(polygon="-20,-181 -20,-170 -10,-170 -10,-181"), {"apia", "date line", "other side"}),
        (QueryText(polygon="1,1 1,2 1,3"), set[str]()),
        (QueryText(polygon=bavaria, near="48.1,11.6,10", where=["latitude > 48"]), {"munich"}),
    ]
    reader = RecordingReader(parse_dsn(url))
    wrong = [(text, actual, wanted) for text, wanted in expected if (actual := matching_ids(reader, text)) != wanted]
    reader.close()
    assert not wrong


def test_place_on_shared_edge_is_in_one_polygon(store: Store, url: str) -> None:
    store.write(
        [recorded_rows(f"{x} {y}", {"latitude": float(y), "longitude": float(x)}) for x in range(3) for y in range(3)]
    )
    reader = RecordingReader(parse_dsn(url))
    tiles = [f"{y},{x} {y},{x + 1} {y + 1},{x + 1} {y + 1},{x}" for x in range(2) for y in range(2)]
    inside = [matching_ids(reader, QueryText(polygon=tile)) for tile in tiles]
    reader.close()
    assert inside == [{"0 0"}, {"0 1"}, {"1 0"}, {"1 1"}]
