"""Bringing the tables of a store up to date."""

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, func, insert, inspect, select, update

from app.recording.tables import SCHEMA, schema_version
from app.settings.server import SettingsError

__all__ = ("MIGRATIONS", "Migration", "upgrade")

Migration = Callable[[Connection], None]
"""Changes the tables from one version to the next, and whatever is in them."""

MIGRATIONS: Sequence[Migration] = ()
"""The first leads from version 1 to version 2. What one does, it does without `tables`, which go on changing."""


def upgrade(connection: Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Make the tables, or bring those that are there to this program's version, in the transaction of `connection`.

    Raises:
        SettingsError: when they are of a later version, or somebody else's.
    """
    newest = len(migrations) + 1
    if connection.dialect.name == "postgresql":
        # Of several that start at once, one makes the tables and the others wait for it.
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    present = set(inspect(connection).get_table_names())
    if schema_version.name not in present:
        if taken := sorted(present & set(SCHEMA.tables)):
            raise SettingsError(f"The store has a table {taken[0]} already, which is none of recordings")
        SCHEMA.create_all(connection)
        connection.execute(insert(schema_version).values(version=newest))
        return
    version = connection.execute(select(schema_version.c.version)).scalar_one()
    if version > newest:
        message = (
            f"The store was written by a later Charioteer: its tables have version {version}, this one knows {newest}"
        )
        raise SettingsError(message)
    for migration in migrations[version - 1 :]:
        migration(connection)
    if version < newest:
        connection.execute(update(schema_version).values(version=newest))


_LOCK = 0x63686172696F74
