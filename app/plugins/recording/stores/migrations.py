"""Migrate the tables of a store to the current version."""

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, func, insert, inspect, select, text, update

from app.core.settings.server import SettingsError
from app.plugins.recording.stores.one_table import join_tables
from app.plugins.recording.stores.tables import SCHEMA, schema_version

Migration = Callable[[Connection], None]
"""Changes the tables and their contents from one version to the next."""

_TRUTHS = (
    "ALTER TABLE inferences ADD COLUMN reason TEXT {collation}",
    "ALTER TABLE inferences ADD COLUMN probability {double}",
    "CREATE INDEX inferences_reason ON inferences (reason, number) WHERE reason IS NOT NULL",
    """CREATE TABLE inference_truths (
        number {number} NOT NULL, revision INTEGER NOT NULL, current BOOLEAN NOT NULL, verdict TEXT NOT NULL,
        complete BOOLEAN NOT NULL, source TEXT NOT NULL, author TEXT NOT NULL, time BIGINT NOT NULL,
        comment TEXT NOT NULL, records TEXT, PRIMARY KEY (number, revision)
    ) {options}""",
)


def _add_truths(connection: Connection) -> None:
    sqlite = {"number": "INTEGER", "double": "DOUBLE", "collation": "", "options": "WITHOUT ROWID"}
    postgresql = {"number": "BIGINT", "double": "DOUBLE PRECISION", "collation": 'COLLATE "C"', "options": ""}
    types = sqlite if connection.dialect.name == "sqlite" else postgresql
    for statement in _TRUTHS:
        connection.execute(text(statement.format(**types)))


MIGRATIONS: Sequence[Migration] = (_add_truths, join_tables)
"""The first leads from version 1 to version 2, which 0.2 wrote.

A migration must not import `tables`, which change later.
"""

NEWEST_VERSION = len(MIGRATIONS) + 1
"""The version of the tables of this program."""


def upgrade(connection: Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Create the tables, or migrate them to this program's version, in the transaction of `connection`.

    Raise SettingsError when they have a later version, or belong to another program.
    """
    newest = len(migrations) + 1
    if connection.dialect.name == "postgresql":
        # If several servers start at once, one creates the tables and the others wait for it.
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    present = set(inspect(connection).get_table_names())
    if schema_version.name not in present:
        if existing := sorted(present & set(SCHEMA.tables)):
            raise SettingsError(f"The store has a table {existing[0]} already, which is none of recordings")
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
