"""Build the routes that show recorded inferences."""

from typing import TYPE_CHECKING

from app.server.inferences import Inferences
from app.server.loopback import is_loopback_host
from app.server.query_pool import QueryPool
from app.settings.server import ServerSettings

if TYPE_CHECKING:
    from app.recording.query.reader import RecordingReader

__all__ = ("recording_routes",)

_MAX_QUERY_SECONDS = 10.0
"""Longer queries are cancelled, because each occupies a core."""


def recording_routes(settings: ServerSettings, query_pool: QueryPool | None = None) -> Inferences:
    """Return the routes for recordings. If they are disabled, they answer with the reason.

    Recordings hold images and metadata of clients, so by default they are shown only on a loopback address.

    Args:
        settings: of the server.
        query_pool: runs the queries.
    """
    if settings.record is None:
        return Inferences(None, "This server records nothing; set --record to a store")
    allowed = settings.serve_inferences
    if allowed is None:
        allowed = is_loopback_host(settings.host)
    if not allowed:
        return Inferences(None, "This server does not show its recordings; --serve-inferences enables it")
    store, images = settings.record, settings.record_images

    def open_reader() -> "RecordingReader":
        from app.recording.dsn import parse_dsn
        from app.recording.query.reader import RecordingReader

        return RecordingReader(parse_dsn(store), images, _MAX_QUERY_SECONDS)

    return Inferences(open_reader, query_pool=query_pool)
