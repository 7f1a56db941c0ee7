"""Parsing of circles, boxes and polygons, and the ranges around them."""

import json
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.recording.geography import (
    EARTH_KILOMETRES,
    Bounds,
    Box,
    Circle,
    Polygon,
    parse_box,
    parse_circle,
    parse_polygon,
)
from tasks.inference.error import InferenceError

LATITUDES, LONGITUDES = st.floats(-90, 90), st.floats(-180, 180)


def inside(ranges: list[Bounds], latitude: float, longitude: float) -> bool:
    return any(
        bounds.south <= latitude <= bounds.north and bounds.west <= longitude <= bounds.east for bounds in ranges
    )


def kilometres(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Return the great-circle distance, from the angle between two directions at the Earth's centre."""
    vectors: list[tuple[float, float, float]] = []
    for latitude, longitude in (first, second):
        north, east = math.radians(latitude), math.radians(longitude)
        vectors.append((math.cos(north) * math.cos(east), math.cos(north) * math.sin(east), math.sin(north)))
    (x, y, z), (u, v, w) = vectors
    across = math.hypot(y * w - z * v, z * u - x * w, x * v - y * u)
    return EARTH_KILOMETRES * math.atan2(across, x * u + y * v + z * w)


@given(LATITUDES, LONGITUDES, st.floats(0, 22_000), LATITUDES, LONGITUDES)
def test_bounds_of_circle_contain_all_its_points(
    latitude: float, longitude: float, radius: float, other_latitude: float, other_longitude: float
) -> None:
    circle = Circle(latitude=latitude, longitude=longitude, kilometres=radius)
    assume(kilometres((latitude, longitude), (other_latitude, other_longitude)) <= radius)
    assert inside(circle.bounds(), other_latitude, other_longitude)


def test_circle_crosses_antimeridian_and_pole() -> None:
    fiji = Circle(latitude=-17, longitude=179.9, kilometres=50).bounds()
    assert inside(fiji, -17, -179.9)
    assert not inside(fiji, -17, 0)
    assert inside(Circle(latitude=89.9, longitude=0, kilometres=50).bounds(), 89.9, 180)


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("10,20,30,40", (10, 20), True),
        ("10,20,30,40", (30, 40), True),
        ("10,20,30,40", (30.001, 40), False),
        ("-20,170,20,-170", (0, 180), True),
        ("-20,170,20,-170", (0, -180), True),
        ("-20,170,20,-170", (0, -175), True),
        ("-20,170,20,-170", (0, 160), False),
        ("-20,170,20,180", (0, -180), True),
        ("-20,-180,20,-170", (0, 180), True),
        ("-90,-180,90,180", (12, 34), True),
        ("80,100,90,140", (90, 0), True),
        ("80,100,90,140", (89.9, 0), False),
        ("-90,100,-80,140", (-90, -30), True),
        ("0,0,0,0", (0, 0), True),
    ],
)
def test_box_contains_point(text: str, place: tuple[float, float], expected: bool) -> None:
    assert inside(parse_box(text).bounds(), *place) is expected


def test_polygon_is_parsed_from_points_and_geojson() -> None:
    expected = Polygon(rings=(((1, 2), (1, 4), (3, 4)),))
    coordinates = [[[2, 1], [4, 1], [4, 3], [2, 1]]]
    polygon = {"type": "Polygon", "coordinates": coordinates}
    feature = {"type": "Feature", "properties": {}, "geometry": polygon}
    for text in (
        "1,2 1,4 3,4",
        " 1,2; 1,4; 3,4; 1,2",
        json.dumps(polygon),
        json.dumps({"type": "MultiPolygon", "coordinates": [coordinates]}),
        json.dumps(feature),
        json.dumps({"type": "FeatureCollection", "features": [feature]}),
        json.dumps({"type": "Polygon", "coordinates": [[[2, 1, 99], [4, 1, 99], [4, 3, 99]]]}),
    ):
        assert parse_polygon(text) == expected, text


def test_polygon_across_antimeridian_has_edges_on_both_sides() -> None:
    polygon = parse_polygon("-10,170 -10,190 10,190 10,170")
    assert {edge.from_longitude for edge in polygon.edges()} == {170, 190, -190, -170}
    assert polygon.bounds() == [Bounds(-10, -180, 10, -170), Bounds(-10, 170, 10, 180)]


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (parse_circle, "1,2", "Expected latitude,longitude,kilometres as numbers"),
        (parse_circle, "a,b,c", "as numbers, got 'a,b,c'"),
        (parse_circle, "nan,0,1", "as numbers"),
        (parse_circle, "0,0,inf", "as numbers"),
        (parse_circle, "91,0,1", "Expected a latitude within -90..90"),
        (parse_circle, "0,181,1", "a longitude within -180..180, got 0 and 181"),
        (parse_circle, "0,0,-1", "at least 0 kilometres"),
        (parse_box, "1,2,3", "Expected south,west,north,east as numbers"),
        (parse_box, "10,0,5,1", "Expected a south of at most the north"),
        (parse_polygon, "", "at least 3 different points, got 0"),
        (parse_polygon, "1,2 3,4 1,2", "at least 3 different points, got 2"),
        (parse_polygon, "1 2 3", "Expected latitude,longitude as numbers, got '1'"),
        (parse_polygon, "95,0 0,0 0,1", "got latitude 95"),
        (parse_polygon, "0,0 0,600 1,1", "longitudes within -540..540"),
        (parse_polygon, "0,170 0,-170 5,-170 5,170", "write 190 for -170 to cross the antimeridian"),
        (parse_polygon, " ".join(f"{i % 90},{i % 180}" for i in range(2001)), "Expected at most 2000 points, got 2001"),
        (parse_polygon, "{", "Expected GeoJSON"),
        (parse_polygon, '{"type":"Point","coordinates":[1,2]}', "Expected a Polygon, a MultiPolygon or one Feature"),
        (parse_polygon, '{"type":"Polygon","coordinates":[]}', "Expected rings"),
        (parse_polygon, '{"type":"Polygon","coordinates":[[[1]]]}', "Expected rings"),
        (parse_polygon, '{"type":"Polygon","coordinates":[[[1,"x"]]]}', "Expected GeoJSON"),
        (parse_polygon, '{"type":"Feature"}', "Expected GeoJSON"),
        (parse_polygon, '{"type":"Polygon","coordinates":' + "[" * 100_000, "Expected GeoJSON"),
        (parse_polygon, '{"type":"Polygon","coordinates":[[[0,1e400],[1,1],[1,2]]]}', "Expected"),
    ],
)
def test_error_describes_the_invalid_area(read: object, text: str, message: str) -> None:
    assert callable(read)
    with pytest.raises(InferenceError) as raised:
        read(text)
    assert message in raised.value.message
    assert raised.value.path in ("near", "box", "polygon")


@given(st.text(alphabet='0123456789.,- e;{}[]"', max_size=40))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    for read in (parse_circle, parse_box, parse_polygon):
        try:
            area = read(text)
        except InferenceError:
            continue
        assert isinstance(area, Circle | Box | Polygon)
