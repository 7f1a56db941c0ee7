"""Open the recorder that the settings describe."""

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from app.settings.extras import missing_extra
from app.settings.server import ServerSettings, SettingsError

if TYPE_CHECKING:
    from app.recording.address import StoreAddress
    from app.recording.recorder import Recorder
    from app.recording.store import Store

__all__ = ("open_recorder",)

_DAY = 24 * 60 * 60


def open_recorder(settings: ServerSettings, metrics: CollectorRegistry) -> "Recorder | None":
    """Start and return a recorder; None if recording is off.

    Raises:
        SettingsError: when settings contradict each other, or the store cannot be used as configured.
    """
    if settings.record is None:
        _check_alone(settings)
        return None
    from app.recording.address import read_address
    from app.recording.conversion import Conversion
    from app.recording.images import ImageFolder
    from app.recording.recorder import Recorder
    from app.recording.redaction import Redaction
    from app.recording.report import Report
    from app.recording.retention import Retention
    from app.recording.store import StoreError
    from app.recording.writer import Writer

    records, images = _periods(settings)
    acknowledging = settings.record_mode == "acknowledge"
    address = read_address(settings.record)
    store = _store(address)
    folder = ImageFolder(settings.record_images, durable=acknowledging) if settings.record_images else None
    report = Report(metrics, address.shown)
    retention = Retention(store, folder, records, images)
    writer = Writer(store, folder, retention, report, awaited=acknowledging, most_waiting=settings.record_queue)
    conversion = Conversion(Redaction(_listed(settings.record_redact)), keep_images=folder is not None)
    recorder = Recorder(conversion, writer, report, settings.record_sample, acknowledging=acknowledging)
    try:
        recorder.start()
    except StoreError as error:
        raise SettingsError(f"The store of recordings cannot be used: {error}") from None
    return recorder


def _store(address: "StoreAddress") -> "Store":
    if address.dialect == "sqlite":
        from app.recording.sqlite_store import SqliteStore

        return SqliteStore(address.file)
    try:
        from app.recording.postgres_store import PostgresStore
    except ImportError as error:
        raise SettingsError(missing_extra("--record in PostgreSQL", "postgres", error)) from None
    return PostgresStore(address)


def _listed(keys: str) -> list[str]:
    return [key for part in keys.split(",") if (key := part.strip())]


def _periods(settings: ServerSettings) -> tuple[float | None, float | None]:
    """Return how long to keep records and images, in seconds; None for no limit."""
    records, images = settings.record_keep, settings.record_keep_images
    if images is None:
        images = records
    if records is not None and images is not None and images > records:
        message = f"--record-keep-images is {images:g} days, longer than the records' own {records:g} (--record-keep)"
        raise SettingsError(message)
    return None if records is None else records * _DAY, None if images is None else images * _DAY


def _check_alone(settings: ServerSettings) -> None:
    wanted = {
        "--record-images": settings.record_images,
        "--record-keep": settings.record_keep,
        "--record-keep-images": settings.record_keep_images,
        "--record-redact": settings.record_redact,
    }
    if given := [name for name, value in wanted.items() if value]:
        raise SettingsError(f"{given[0]} needs --record")
