"""Start shadow versions, if requests are recorded."""

from collections.abc import Sequence

from app.core.hooks import Host, Parts
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import SettingsError
from app.plugins.recording.service import recording_routes, redacted_keys, store_at
from app.plugins.recording.settings import RecordingSettings
from app.plugins.shadow.settings import settings_of, shadow_source


def start(host: Host) -> Parts:
    """Return the observer, if any model of the server may have a shadow version.

    Raise SettingsError when a shadow version does not exist, answers clients too, or cannot be recorded.
    """
    settings = host.settings.of(RecordingSettings)

    def check(sources: Sequence[ModelSource]) -> None:
        for source in sources:
            if settings_of(source).version:
                shadow_source(source, [other.version for other in sources if other.name == source.name])
                if settings.record is None:
                    raise ModelError(f'{source.folder}: "shadow" needs --record, where its answers are kept')

    try:
        check([one.source for one in host.engine.registry.registrations])
    except ModelError as error:
        raise SettingsError(str(error)) from None
    host.engine.repository.checks.append(check)
    if settings.record is None:
        return Parts()
    # Import late: servers that record nothing start faster.
    from app.plugins.recording.row_converter import Redaction
    from app.plugins.recording.stores.store import parse_dsn
    from app.plugins.shadow.rows import ShadowWriter
    from app.plugins.shadow.service import Shadows

    writer = ShadowWriter(store_at(parse_dsn(settings.record)))
    shadows = Shadows(host.engine, writer, Redaction(redacted_keys(settings)), host.metrics)
    # The view shows answers, as the view of recordings does.
    views = {"shadow": shadows.differing} if recording_routes(host.settings).is_available else {}
    return Parts(observers=(shadows,), close=shadows.close, views=views)
