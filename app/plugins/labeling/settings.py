"""Options of `serve` for Label Studio, and its protocol if they enable it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from app.core.hooks import Protocols
from app.core.settings.environment import environment
from app.core.settings.server import ServerSettings


@Parameter(name="*", group=Group("Label Studio", sort_key=10))
@dataclass(frozen=True, kw_only=True)
class LabelStudioSettings:
    """The ML backend of Label Studio."""

    label_studio: Annotated[bool, environment("CHARIOTEER_LABEL_STUDIO", show=True)] = False
    """Whether to serve models as ML backends of Label Studio, at /label-studio/<model>."""

    label_studio_url: Annotated[str, environment("CHARIOTEER_LABEL_STUDIO_URL")] = ""
    """Address of Label Studio, from which images are read; without one, only images inside requests are accepted."""

    label_studio_key: Annotated[Path | None, environment("CHARIOTEER_LABEL_STUDIO_KEY")] = None
    """File with an access token of Label Studio, for its images. It is sent to no other host."""

    label_studio_image_hosts: Annotated[str, environment("CHARIOTEER_LABEL_STUDIO_IMAGE_HOSTS")] = ""
    """Other hosts from which images are read, such as those of buckets, separated by commas: a name for HTTPS, or
    scheme, name and port."""

    label_studio_networks: Annotated[str, environment("CHARIOTEER_LABEL_STUDIO_NETWORKS")] = ""
    """Private networks in which those hosts may be, such as 10.1.0.0/16, separated by commas; by default only public
    addresses are accepted."""


def protocols(settings: ServerSettings) -> Protocols:
    """Return the protocol, if it is enabled. Raise SettingsError as `ImageReader`."""
    options = settings.of(LabelStudioSettings)
    if not options.label_studio:
        return Protocols()
    # Import late: other servers need no HTTP client, and start faster.
    from app.plugins.labeling.images import ImageReader
    from app.plugins.labeling.routes import LabelStudio

    return Protocols(http=(LabelStudio(ImageReader(options)),))
