"""What the server shows of its recordings."""

from typing import TYPE_CHECKING

from app.server.inferences import Inferences
from app.server.loopback import names_loopback
from app.settings.server import ServerSettings

if TYPE_CHECKING:
    from app.recording.query_reader import Reader

__all__ = ("served_inferences",)

_SECONDS = 10.0
"""A query that takes longer is given up: it holds a core."""


def served_inferences(settings: ServerSettings) -> Inferences:
    """The routes of recordings, which say why where there is nothing to show.

    Recordings have pictures and whatever senders wrote beside them, so that without another word they are shown only to
    this machine.
    """
    if settings.record is None:
        return Inferences(None, "This server records nothing: --record says where to")
    allowed = settings.serve_inferences
    if allowed is None:
        allowed = names_loopback(settings.host)
    if not allowed:
        return Inferences(None, "This server does not show its recordings: --serve-inferences lets it")
    store, images = settings.record, settings.record_images

    def opened() -> "Reader":
        from app.recording.address import read_address
        from app.recording.query_reader import Reader

        return Reader(read_address(store), images, _SECONDS)

    return Inferences(opened)
