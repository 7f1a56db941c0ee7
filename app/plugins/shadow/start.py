"""Start shadow versions, if requests are recorded."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from app.core.engine.engine import Engine
from app.core.hooks import Host, Parts
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource, read_settings
from app.core.settings.server import SettingsError
from app.plugins.recording.service import recording_routes, redacted_keys, store_at
from app.plugins.recording.settings import RecordingSettings
from app.plugins.shadow.settings import ShadowSettings

_SECONDS_A_DAY = 86_400
_OFF = ShadowSettings()


def start(host: Host) -> Parts:
    """Return the observer, if any model of the server may have a shadow version.

    Raises:
        SettingsError: when a shadow version does not exist, answers clients too, or cannot be recorded.
    """
    settings, sources = host.settings.of(RecordingSettings), [one.source for one in host.engine.registry.registrations]
    champions = [source for source in sources if settings_of(source).version]
    for source in champions:
        try:
            shadow_source(source)
            check_not_served(host.engine, source)
        except ModelError as error:
            raise SettingsError(str(error)) from None
        if settings.record is None:
            raise SettingsError(f'{source.folder}: "shadow" needs --record, where its answers are kept')
    if settings.record is None:
        return Parts()
    # Import late: servers that record nothing start faster.
    from app.plugins.recording.row_converter import Redaction
    from app.plugins.recording.stores.store import parse_dsn
    from app.plugins.shadow.rows import ShadowWriter
    from app.plugins.shadow.service import Shadows

    keep = None if settings.record_keep is None else settings.record_keep * _SECONDS_A_DAY
    writer = ShadowWriter(store_at(parse_dsn(settings.record)), keep)
    shadows = Shadows(host.engine, writer, Redaction(redacted_keys(settings)), host.metrics)
    # The view shows answers, as the view of recordings does.
    is_shown = champions and recording_routes(host.settings).is_available
    views = {"shadow": shadows.differing} if is_shown else {}
    return Parts(observers=(shadows,), close=shadows.close, views=views)


def settings_of(source: ModelSource) -> ShadowSettings:
    """Return the settings of a model's shadow version."""
    # The attribute is read for every request; `ModelSettings.of` would search for it.
    return getattr(source.settings, "shadow", _OFF)


def shadow_source(source: ModelSource) -> ModelSource:
    """Return the shadow version of a model.

    Raises:
        ModelError: when the model has no such version.
    """
    version, root = settings_of(source).version, source.root
    folders: Sequence[Path] = () if root is None else (root / version, root / f"v{version}")
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder is None or Path(version).name != version:
        raise ModelError(f'{root or source.folder}: "shadow": There is no version {version!r} beside the served ones')
    settings = source.settings
    if (folder / SETTINGS_FILE).is_file():
        settings = read_settings(folder)
        if settings.onnxruntime.devices is None:
            settings = msgspec.structs.replace(settings, onnxruntime=source.settings.onnxruntime)
    file = None if settings.uri is None else folder / settings.uri
    return msgspec.structs.replace(
        source, version=version, folder=folder, settings=settings, file=file, fallbacks=(), fault=None
    )


def check_not_served(engine: Engine, source: ModelSource) -> None:
    """Check that the shadow version of a model answers no clients.

    Raises:
        ModelError: when it does.
    """
    shadow, versions = settings_of(source).version, engine.registry.versions(source.name)
    served = [version.source.version for version in versions if version.source.version != shadow]
    if len(served) < len(versions):
        raise ModelError(
            f'{source.root or source.folder}: "shadow": version {shadow!r} answers clients too; '
            f'set "versions" to the others, such as {msgspec.json.encode(served or ["1"]).decode()}'
        )
