"""The protocol of Label Studio's ML backends, if it is enabled."""

from app.core.hooks import Protocols
from app.core.settings.server import ServerSettings
from app.plugins.labeling.settings import LabelStudioSettings


def protocols(settings: ServerSettings) -> Protocols:
    """Return the protocol, if it is enabled. Raise SettingsError as `ImageReader`."""
    options = settings.of(LabelStudioSettings)
    if not options.label_studio:
        return Protocols()
    # Import late: other servers need no HTTP client, and start faster.
    from app.plugins.labeling.images import ImageReader
    from app.plugins.labeling.routes import LabelStudio

    return Protocols(http=(LabelStudio(ImageReader(options)),))
