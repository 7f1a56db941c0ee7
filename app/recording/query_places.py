"""Places as SQL over the columns `latitude` and `longitude`, in functions that SQLite and PostgreSQL both have."""

from sqlalchemy import CTE, ColumnElement, Double, and_, case, column, func, literal, or_, select, values
from sqlalchemy.sql.expression import FromClause

from app.recording.geography import Bounds, Box, Circle, Edge, Shape
from app.recording.query_metadata import Predicate

__all__ = ("place_test", "within")

_DOUBLE: Double[float] = Double()
_NOWHERE = (-100.0, 0.0, -101.0, 0.0)
"""An edge beyond the poles: a ring may have none, when all of it is level."""


def within(row: FromClause, bounds: Bounds) -> ColumnElement[bool]:
    """Whether a row's place is in a range; an index knows."""
    return and_(row.c.latitude.between(bounds.south, bounds.north), row.c.longitude.between(bounds.west, bounds.east))


def place_test(shape: Shape) -> Predicate:
    """Whether a row's place is in a shape: first by its bounds, which cost little."""
    ranges = shape.bounds()

    def bounded(row: FromClause) -> ColumnElement[bool]:
        return or_(*(within(row, each) for each in ranges))

    match shape:
        case Box():
            return bounded
        case Circle():
            return lambda row: and_(bounded(row), _haversine(row, shape) <= shape.chord)
        case _:
            table = _table(shape.edges())
            return lambda row: and_(bounded(row), _crossings(row, table) % 2 == 1)


def _haversine(row: FromClause, circle: Circle) -> ColumnElement[float]:
    """Of the angle between a row's place and the circle's centre."""
    latitude, longitude = row.c.latitude, row.c.longitude
    north = func.sin(func.radians(latitude - circle.latitude) / 2.0, type_=_DOUBLE)
    east = func.sin(func.radians(longitude - circle.longitude) / 2.0, type_=_DOUBLE)
    narrowing = func.cos(func.radians(latitude), type_=_DOUBLE) * func.cos(
        func.radians(literal(circle.latitude, _DOUBLE)), type_=_DOUBLE
    )
    return north * north + narrowing * east * east


def _table(edges: list[Edge]) -> CTE:
    names = ("from_latitude", "from_longitude", "to_latitude", "to_longitude")
    rows = [(each.from_latitude, each.from_longitude, each.to_latitude, each.to_longitude) for each in edges]
    # SQLite names the columns of such a table only where it stands in front of the query.
    return values(*(column(name, _DOUBLE) for name in names)).data(rows or [_NOWHERE]).cte("edges")


def _crossings(row: FromClause, edges: CTE) -> ColumnElement[int]:
    """How many edges a line from a row's place to the east crosses."""
    of, latitude = edges.c, row.c.latitude
    # -180 and 180 are one meridian, and have to be on the same side of an edge.
    longitude = case((row.c.longitude == 180.0, -180.0), else_=row.c.longitude)
    crossing = of.from_longitude + (of.to_longitude - of.from_longitude) * (latitude - of.from_latitude) / (
        of.to_latitude - of.from_latitude
    )
    spanning = (of.from_latitude > latitude) != (of.to_latitude > latitude)
    return (
        select(func.count()).select_from(edges).where(spanning, longitude < crossing).correlate(row).scalar_subquery()
    )
