"""Record the inferences of a server, and serve its recordings, as its settings describe."""

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from app.core.engine.error_text import needs_extra
from app.core.engine.request_context import RequestContext
from app.core.hooks import Host, Parts
from app.core.server.auth.bind_policy import is_loopback_host
from app.core.settings.server import ServerSettings, SettingsError
from app.plugins.recording.api import ShadowWatch, StoredTruths, TruthJudge
from app.plugins.recording.inferences import Inferences
from app.plugins.recording.settings import RecordingSettings

if TYPE_CHECKING:
    from app.plugins.recording.query.reader import RecordingReader
    from app.plugins.recording.recorder import Recorder
    from app.plugins.recording.stores.store import Store, StoreDsn
    from app.plugins.recording.truth_routes import Truths

_DAY = 24 * 60 * 60
_NEED_RECORD = ("record_images", "record_keep", "record_keep_images", "record_redact", "record_when", "serve_truth")

MAX_QUERY_SECONDS = 10.0
"""Longer queries are cancelled, because each occupies a core."""


def start(host: Host) -> Parts:
    """Return the recorder, and the routes that show its recordings.

    Raise SettingsError when settings contradict each other, or the store cannot be used as configured.
    """
    settings = host.settings.of(RecordingSettings)
    recorder = open_recorder(settings, host.metrics)
    if recorder is not None:
        host.provide(ShadowWatch, partial(_watch_shadow, recorder))
    inferences = recording_routes(host.settings, host.metrics)
    truths = _open_truths(settings, host)
    if truths is not None:
        host.provide(StoredTruths, truths)

    def close(seconds: float) -> None:
        inferences.close()
        if truths is not None:
            truths.close(seconds)
        if recorder is not None:
            recorder.close(seconds)

    return Parts(
        record_sink=recorder,
        handlers=[*inferences.handlers, *(truths.handlers if truths else ())],
        operations=[*inferences.operations, *(truths.operations if truths else ())],
        close=close,
        costly_prefixes=("/inferences",),
        views={"inferences": None} if inferences.is_available else {},
    )


def _watch_shadow(recorder: "Recorder", context: RequestContext) -> Callable[[int], None] | None:
    if not recorder.select.awaits_shadow(context):
        return None
    # The engine drops the images of requests that have ended.
    kept = copy(context)

    def record(differing: int) -> None:
        if (selection := recorder.select.after_shadow(kept, differing)) is not None:
            recorder.record_as(kept, selection)

    return record


def _open_truths(settings: RecordingSettings, host: Host) -> "Truths | None":
    if settings.record is None or not settings.serve_truth:
        return None
    from app.plugins.recording.row_converter import Redaction
    from app.plugins.recording.stores.store import parse_dsn
    from app.plugins.recording.truth_routes import Truths
    from app.plugins.recording.truth_store import TruthStore

    store = TruthStore(parse_dsn(settings.record), Redaction(redacted_keys(settings)), MAX_QUERY_SECONDS)
    return Truths(store, lambda: host.find(TruthJudge))


def open_recorder(settings: RecordingSettings, metrics: CollectorRegistry) -> "Recorder | None":
    """Start and return a recorder; None if it is off.

    Raise SettingsError when settings contradict each other, or the store cannot be used as configured.
    """
    records_days, images_days = settings.record_keep, settings.record_keep_images or settings.record_keep
    if settings.record is None:
        for option in _NEED_RECORD:
            if getattr(settings, option):
                raise SettingsError(f"--{option.replace('_', '-')} needs --record")
        return None
    if settings.record_keep_images and settings.record_images is None:
        raise SettingsError("--record-keep-images needs --record-images")
    if records_days and images_days and images_days > records_days:
        longer = f"--record-keep-images is {images_days:g} days, longer than the records' own {records_days:g}"
        raise SettingsError(f"{longer} (--record-keep)")
    from app.plugins.recording.images import ImageFolder
    from app.plugins.recording.recorder import Recorder
    from app.plugins.recording.recording_metrics import RecordingMetrics
    from app.plugins.recording.retention import Retention
    from app.plugins.recording.row_converter import Redaction, RowConverter
    from app.plugins.recording.rules import RuleSelector, parse_rules
    from app.plugins.recording.stores.store import StoreError, parse_dsn
    from app.plugins.recording.writer import Writer

    rules = parse_rules(settings.record_when)
    if rules and settings.record_sample == 1:
        message = "--record-when has no effect if everything is recorded; add --record-sample, such as 0.05"
        raise SettingsError(message)
    acknowledging = settings.record_mode == "acknowledge"
    dsn = parse_dsn(settings.record)
    store = store_at(dsn)
    folder = ImageFolder(settings.record_images, durable=acknowledging) if settings.record_images else None
    recording_metrics = RecordingMetrics(metrics, dsn.display_name)
    retention = Retention(store, folder, records_days and records_days * _DAY, images_days and images_days * _DAY)
    writer = Writer(
        store, folder, retention, recording_metrics, acknowledge=acknowledging, max_queued=settings.record_queue
    )
    converter = RowConverter(Redaction(redacted_keys(settings)), keep_images=folder is not None)
    try:
        writer.start()
    except StoreError as error:
        raise SettingsError(f"The store of recordings cannot be used: {error}") from None
    return Recorder(converter, writer, recording_metrics, RuleSelector(rules, settings.record_sample, metrics))


def store_at(dsn: "StoreDsn") -> "Store":
    """Return the store at an address, not yet opened.

    Raise SettingsError when the driver of the store is not installed.
    """
    if dsn.dialect == "sqlite":
        from app.plugins.recording.stores.sqlite_store import SqliteStore

        return SqliteStore(dsn.file)
    from app.plugins.recording.stores.postgres_store import PostgresStore

    with needs_extra("PostgreSQL", "postgres", SettingsError):
        return PostgresStore(dsn)


def redacted_keys(settings: RecordingSettings) -> Sequence[str]:
    """Return the keys whose values are not recorded."""
    return [key for part in settings.record_redact.split(",") if (key := part.strip())]


def recording_routes(server_settings: ServerSettings, metrics: CollectorRegistry | None = None) -> Inferences:
    """Return the routes for recordings. If they are disabled, they answer with the reason.

    Recordings hold images and metadata of clients, so by default they are shown only on a loopback address.
    """
    host, settings = server_settings.host, server_settings.of(RecordingSettings)
    allowed = is_loopback_host(host) if settings.serve_inferences is None else settings.serve_inferences
    if settings.record is None:
        return Inferences(None, "This server records nothing; set --record to a store")
    if not allowed:
        return Inferences(None, "This server does not show its recordings; --serve-inferences enables it")
    store, images = settings.record, settings.record_images

    def open_reader() -> "RecordingReader":
        from app.plugins.recording.query.reader import RecordingReader
        from app.plugins.recording.stores.store import parse_dsn

        return RecordingReader(parse_dsn(store), images, MAX_QUERY_SECONDS)

    return Inferences(open_reader, metrics=metrics)
