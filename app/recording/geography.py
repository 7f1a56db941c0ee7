"""Places on Earth: circles, boxes and polygons in degrees of latitude (north) and longitude (east), WGS 84.

Longitudes wrap around in circles and boxes: a box whose west is greater than its east crosses the antimeridian.
Polygon edges are straight in latitude and longitude, as in GeoJSON (RFC 7946). The even-odd rule defines the inside.
Northern and eastern edges are outside, so that a place lies in only one of two adjacent polygons.
"""

import math
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from tasks.inference.error import invalid, quote_value

__all__ = (
    "EARTH_KILOMETRES",
    "Bounds",
    "Box",
    "Circle",
    "Edge",
    "Polygon",
    "Shape",
    "parse_box",
    "parse_circle",
    "parse_polygon",
)

EARTH_KILOMETRES = 6371.0088
"""The mean radius."""

MAX_POINTS = 2000
_HALF_TURN = 180.0
_SLACK = 1e-9
"""Margin of the bounds in degrees (0.1 mm), which covers rounding in the exact test."""


class Bounds(msgspec.Struct, frozen=True):
    """A range of latitudes and a range of longitudes within -180..180, both inclusive."""

    south: float
    west: float
    north: float
    east: float


class Circle(msgspec.Struct, frozen=True, kw_only=True):
    """All places within a distance of a centre, in kilometres along the ground."""

    latitude: float
    longitude: float
    kilometres: float

    def bounds(self) -> list[Bounds]:
        """Return ranges that cover the circle."""
        angle = self.kilometres / EARTH_KILOMETRES
        south = self.latitude - math.degrees(angle) - _SLACK
        north = self.latitude + math.degrees(angle) + _SLACK
        if south <= -90 or north >= 90:
            return [Bounds(max(south, -90.0), -_HALF_TURN, min(north, 90.0), _HALF_TURN)]
        half_width = math.degrees(math.asin(min(1.0, math.sin(angle) / math.cos(math.radians(self.latitude))))) + _SLACK
        return _ranges(south, self.longitude - half_width, north, self.longitude + half_width)

    @property
    def haversine(self) -> float:
        """Return the haversine of the circle's angle: sin² of its half. The angle is at most 180 degrees."""
        return math.sin(min(self.kilometres / EARTH_KILOMETRES, math.pi) / 2) ** 2


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """All places between two latitudes and, going east, between two longitudes; edges included."""

    south: float
    west: float
    north: float
    east: float

    def bounds(self) -> list[Bounds]:
        """Return ranges that cover exactly the box. A pole on its edge is included at every longitude."""
        east = self.east if self.east >= self.west else self.east + 360
        ranges = _ranges(self.south, self.west, self.north, east)
        for pole in (-90.0, 90.0):
            if pole in (self.south, self.north):
                ranges.append(Bounds(pole, -_HALF_TURN, pole, _HALF_TURN))
        return ranges


class Edge(msgspec.Struct, frozen=True):
    """A straight line between two points with different latitudes. A horizontal edge is never crossed."""

    from_latitude: float
    from_longitude: float
    to_latitude: float
    to_longitude: float


class Polygon(msgspec.Struct, frozen=True, kw_only=True):
    """All places inside rings by the even-odd rule: a ring inside another is a hole.

    Attributes:
        rings: (latitude, longitude) of each corner, the first not repeated at the end. Longitudes may pass 180 or -180,
            where a ring lies across the antimeridian.
    """

    rings: tuple[tuple[tuple[float, float], ...], ...]

    def edges(self) -> list[Edge]:
        """Return every edge, repeated for each shift by 360 degrees that brings it within -180..180."""
        edges: list[Edge] = []
        for ring in self.rings:
            west, east = min(point[1] for point in ring), max(point[1] for point in ring)
            for shift in (-360.0, 0.0, 360.0):
                if west + shift <= _HALF_TURN and east + shift >= -_HALF_TURN:
                    edges += _edges(ring, shift)
        return edges

    def bounds(self) -> list[Bounds]:
        """Return ranges that cover the polygon."""
        points = [point for ring in self.rings for point in ring]
        latitudes, longitudes = zip(*points, strict=True)
        return _ranges(min(latitudes), min(longitudes), max(latitudes), max(longitudes))


Shape = Circle | Box | Polygon


def _edges(ring: Sequence[tuple[float, float]], shift: float) -> Iterator[Edge]:
    for (latitude, longitude), (next_latitude, next_longitude) in zip(ring, (*ring[1:], ring[0]), strict=True):
        if latitude != next_latitude:
            yield Edge(latitude, longitude + shift, next_latitude, next_longitude + shift)


def _ranges(south: float, west: float, north: float, east: float) -> list[Bounds]:
    """Split a range that may pass -180 or 180 into ranges within them. Both are the same meridian."""
    if east - west >= 360:
        return [Bounds(south, -_HALF_TURN, north, _HALF_TURN)]
    ranges: list[Bounds] = []
    for shift in (-360.0, 0.0, 360.0):
        low, high = max(west + shift, -_HALF_TURN), min(east + shift, _HALF_TURN)
        if low <= high:
            ranges.append(Bounds(south, low, north, high))
    return ranges


def parse_circle(text: str, name: str = "near") -> Circle:
    """Read ``LATITUDE,LONGITUDE,KILOMETRES``.

    Raises:
        InferenceError: for anything else.
    """
    latitude, longitude, kilometres = _numbers(text, ("latitude", "longitude", "kilometres"), name)
    _check_position(latitude, longitude, name)
    if kilometres < 0:
        raise invalid(f"Expected a distance of at least 0 kilometres, got {kilometres:g}", name)
    return Circle(latitude=latitude, longitude=longitude, kilometres=kilometres)


def parse_box(text: str, name: str = "box") -> Box:
    """Read ``SOUTH,WEST,NORTH,EAST``.

    Raises:
        InferenceError: for anything else, and when the south is greater than the north.
    """
    south, west, north, east = _numbers(text, ("south", "west", "north", "east"), name)
    _check_position(south, west, name)
    _check_position(north, east, name)
    if south > north:
        raise invalid(f"Expected a south of at most the north, got {south:g} and {north:g}", name)
    return Box(south=south, west=west, north=north, east=east)


def parse_polygon(text: str, name: str = "polygon") -> Polygon:
    """Read ``LAT,LON LAT,LON ...``, or a GeoJSON Polygon, MultiPolygon, or Feature of one, where longitudes come first.

    Raises:
        InferenceError: for anything else, for more than 2000 points, and for an edge that spans more than 180 degrees:
            its intended direction is ambiguous.
    """
    if text.lstrip().startswith("{"):
        rings = _geojson_rings(text, name)
    else:
        points = text.replace(";", " ").split()
        if len(points) > MAX_POINTS:
            raise invalid(f"Expected at most {MAX_POINTS} points, got {len(points)}", name)
        rings = [[cast("tuple[float, float]", _numbers(point, ("latitude", "longitude"), name)) for point in points]]
    if sum(map(len, rings)) > MAX_POINTS:
        raise invalid(f"Expected at most {MAX_POINTS} points, got {sum(map(len, rings))}", name)
    return Polygon(rings=tuple(_ring(ring, name) for ring in rings))


def _ring(points: Sequence[tuple[float, float]], name: str) -> tuple[tuple[float, float], ...]:
    corners = points[:-1] if len(points) > 1 and points[0] == points[-1] else points
    if len(set(corners)) < 3:
        raise invalid(f"Expected at least 3 different points, got {len(set(corners))}", name)
    for latitude, longitude in corners:
        if not -90 <= latitude <= 90 or not -540 <= longitude <= 540:
            raise invalid(
                "Expected latitudes within -90..90 and longitudes within -540..540, "
                f"got latitude {latitude:g} and longitude {longitude:g}",
                name,
            )
    for (_, longitude), (_, next_longitude) in zip(corners, (*corners[1:], corners[0]), strict=True):
        if abs(next_longitude - longitude) > _HALF_TURN:
            alternative = next_longitude + math.copysign(360, longitude - next_longitude)
            raise invalid(
                f"The edge from longitude {longitude:g} to {next_longitude:g} goes more than half way round: write "
                f"{alternative:g} for {next_longitude:g} to cross the antimeridian, or put a point between them",
                name,
            )
    return tuple(corners)


class _Geometry(msgspec.Struct):
    type: str
    coordinates: msgspec.Raw = msgspec.Raw(b"null")
    geometry: msgspec.Raw = msgspec.Raw(b"null")
    features: list[msgspec.Raw] = []


_Position = tuple[float, ...]


def _geojson_rings(text: str, name: str) -> list[list[tuple[float, float]]]:
    try:
        geometry = msgspec.json.decode(text, type=_Geometry)
        if geometry.type == "FeatureCollection" and len(geometry.features) == 1:
            geometry = msgspec.json.decode(geometry.features[0], type=_Geometry)
        if geometry.type == "Feature":
            geometry = msgspec.json.decode(geometry.geometry, type=_Geometry)
        if geometry.type == "Polygon":
            polygons = [msgspec.json.decode(geometry.coordinates, type=list[list[_Position]])]
        elif geometry.type == "MultiPolygon":
            polygons = msgspec.json.decode(geometry.coordinates, type=list[list[list[_Position]]])
        else:
            raise invalid(
                f"Expected a Polygon, a MultiPolygon or one Feature of those, got {quote_value(geometry.type)}", name
            )
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid(f"Expected GeoJSON: {error}", name) from None
    positions = [ring for polygon in polygons for ring in polygon]
    if not positions or any(len(position) < 2 for ring in positions for position in ring):
        raise invalid("Expected rings of [longitude, latitude] points", name)
    return [[(position[1], position[0]) for position in ring] for ring in positions]


def _numbers(text: str, names: Sequence[str], name: str) -> tuple[float, ...]:
    parts = text.split(",")
    try:
        numbers = tuple(float(part) for part in parts)
    except ValueError:
        numbers = ()
    if len(numbers) != len(names) or not all(map(math.isfinite, numbers)):
        raise invalid(f"Expected {','.join(names)} as numbers, got {quote_value(text)}", name)
    return numbers


def _check_position(latitude: float, longitude: float, name: str) -> None:
    if not -90 <= latitude <= 90 or not -_HALF_TURN <= longitude <= _HALF_TURN:
        raise invalid(
            f"Expected a latitude within -90..90 and a longitude within -180..180, got {latitude:g} and {longitude:g}",
            name,
        )
