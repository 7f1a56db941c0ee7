"""Images beside recordings, which other plugins read: extensions of ``recording.sources``."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from app.core.plugins import registry
from metadata.request import MetadataEntry


class SourceImage(Protocol):
    """An image of a source.

    `digest` is that of its name; `location` is its path or URL, or empty; `data` is its content in an archive.
    """

    @property
    def name(self) -> str: ...
    @property
    def location(self) -> str: ...
    @property
    def data(self) -> bytes | None: ...
    @property
    def digest(self) -> str: ...
    @property
    def metadata(self) -> Sequence[MetadataEntry]: ...

    def read(self) -> bytes:
        """Return the encoded image. Raise OSError with the reason for the user."""
        ...


def open_source(source: str) -> Iterable[SourceImage] | None:
    """Return the images of a source that another plugin reads, such as a manifest or a URL; None if none does."""
    opened = (open_images(source) for open_images in registry().extensions("recording.sources"))
    return next((images for images in opened if images is not None), None)
