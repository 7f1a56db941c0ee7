"""Build the routes that show recorded inferences."""

from app.recording.inference import RecordedInference
from app.server.http.inferences import InferenceReader, Inferences
from app.server.http.loopback import is_loopback_host
from app.server.http.query_pool import QueryPool
from app.settings.server import ServerSettings

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
        reason = "This server records nothing; set --record to a store"
        return Inferences(None, reason, record_type=RecordedInference)
    allowed = settings.serve_inferences
    if allowed is None:
        allowed = is_loopback_host(settings.host)
    if not allowed:
        reason = "This server does not show its recordings; --serve-inferences enables it"
        return Inferences(None, reason, record_type=RecordedInference)
    store, images = settings.record, settings.record_images

    def open_reader() -> InferenceReader:
        from app.recording.query.reader import RecordingReader
        from app.recording.stores.dsn import parse_dsn

        return RecordingReader(parse_dsn(store), images, _MAX_QUERY_SECONDS)

    return Inferences(open_reader, query_pool=query_pool, record_type=RecordedInference)
