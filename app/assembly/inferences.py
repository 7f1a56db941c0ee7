"""Build the routes that show recorded inferences."""

from typing import TYPE_CHECKING

from app.server.inferences import Inferences
from app.server.loopback import names_loopback
from app.server.query_pool import QueryPool
from app.settings.server import ServerSettings

if TYPE_CHECKING:
    from app.recording.query_reader import Reader

__all__ = ("served_inferences",)

_MAX_QUERY_SECONDS = 10.0
"""Longer queries are cancelled, because each occupies a core."""


def served_inferences(settings: ServerSettings, queries: QueryPool | None = None) -> Inferences:
    """Return the routes for recordings. If they are disabled, they answer with the reason.

    Recordings hold images and metadata of clients, so by default they are shown only on a loopback address.


    Args:
        settings: of the server.
        queries: runs the queries.
    """
    if settings.record is None:
        return Inferences(None, "This server records nothing; set --record to a store")
    allowed = settings.serve_inferences
    if allowed is None:
        allowed = names_loopback(settings.host)
    if not allowed:
        return Inferences(None, "This server does not show its recordings; --serve-inferences enables it")
    store, images = settings.record, settings.record_images

    def open_reader() -> "Reader":
        from app.recording.address import read_address
        from app.recording.query_reader import Reader

        return Reader(read_address(store), images, _MAX_QUERY_SECONDS)

    return Inferences(open_reader, queries=queries)
