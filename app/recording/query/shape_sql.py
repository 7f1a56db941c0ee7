"""Translate shapes into SQL over `latitude` and `longitude`, with functions that SQLite and PostgreSQL share."""

from sqlalchemy import CTE, ColumnElement, Double, and_, case, column, func, literal, or_, select, values
from sqlalchemy.sql.expression import FromClause

from app.recording.geography import Bounds, Box, Circle, Edge, Shape
from app.recording.query.condition_sql import Predicate

__all__ = ("is_within", "shape_test")

_DOUBLE: Double[float] = Double()
_NO_EDGE = (-100.0, 0.0, -101.0, 0.0)
"""An edge beyond the poles, for a ring that has only horizontal edges."""


def is_within(row: FromClause, bounds: Bounds) -> ColumnElement[bool]:
    """Test whether a row's position is in a range. An index covers this test."""
    return and_(row.c.latitude.between(bounds.south, bounds.north), row.c.longitude.between(bounds.west, bounds.east))


def shape_test(shape: Shape) -> Predicate:
    """Return a test whether a row's position is in a shape. It tests the cheap bounds first."""
    ranges = shape.bounds()

    def bounded(row: FromClause) -> ColumnElement[bool]:
        return or_(*(is_within(row, bounds) for bounds in ranges))

    match shape:
        case Box():
            return bounded
        case Circle():
            return lambda row: and_(bounded(row), _haversine(row, shape) <= shape.haversine)
        case _:
            table = _edge_table(shape.edges())
            return lambda row: and_(bounded(row), _crossings(row, table) % 2 == 1)


def _haversine(row: FromClause, circle: Circle) -> ColumnElement[float]:
    """Return the haversine of the angle between a row's position and the circle's centre."""
    latitude, longitude = row.c.latitude, row.c.longitude
    north = func.sin(func.radians(latitude - circle.latitude) / 2.0, type_=_DOUBLE)
    east = func.sin(func.radians(longitude - circle.longitude) / 2.0, type_=_DOUBLE)
    narrowing = func.cos(func.radians(latitude), type_=_DOUBLE) * func.cos(
        func.radians(literal(circle.latitude, _DOUBLE)), type_=_DOUBLE
    )
    return north * north + narrowing * east * east


def _edge_table(edges: list[Edge]) -> CTE:
    names = ("from_latitude", "from_longitude", "to_latitude", "to_longitude")
    rows = [(edge.from_latitude, edge.from_longitude, edge.to_latitude, edge.to_longitude) for edge in edges]
    # SQLite names the columns of a VALUES table only in a common table expression.
    return values(*(column(name, _DOUBLE) for name in names)).data(rows or [_NO_EDGE]).cte("edges")


def _crossings(row: FromClause, edges: CTE) -> ColumnElement[int]:
    """Count the edges that a line from a row's position to the east crosses."""
    edge, latitude = edges.c, row.c.latitude
    # -180 and 180 are the same meridian, and must be on the same side of an edge.
    longitude = case((row.c.longitude == 180.0, -180.0), else_=row.c.longitude)
    crossing = edge.from_longitude + (edge.to_longitude - edge.from_longitude) * (latitude - edge.from_latitude) / (
        edge.to_latitude - edge.from_latitude
    )
    spanning = (edge.from_latitude > latitude) != (edge.to_latitude > latitude)
    return (
        select(func.count()).select_from(edges).where(spanning, longitude < crossing).correlate(row).scalar_subquery()
    )
