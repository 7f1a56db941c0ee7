"""The page's files, read once, and the headers that they go out with."""

import gzip
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from litestar import Response

from app.protocols.protocol import HttpRequest

__all__ = ("HEADERS", "PageFile", "picture_file", "read_files", "respond", "shell", "wants_html")

# Everything comes from this server, nothing is inline, and nobody may frame the page. Pictures that the page made
# itself, of what somebody dropped on it, are blobs.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
    # The page may use the camera when its reader says so, and nothing else of the machine.
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=(), display-capture=(), usb=(), serial=()",
}

_FOLDER = Path(__file__).parent / "static"
_SHELL = "index.html"
_ROOT = b"{root}"
_VIEWS = b"{views}"
_OPENS = b"{opens}"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_PICTURE_TYPES = {".jpg": "image/jpeg", ".png": "image/png"}


class PageFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, ready to be sent.

    Attributes:
        content: as it is.
        packed: by gzip; None where that gains nothing.
        media_type: of the content.
        etag: of the content, without quotes.
    """

    content: bytes
    packed: bytes | None
    media_type: str
    etag: str


def read_files() -> Mapping[str, PageFile]:
    """Every file of the page by its name, the shell aside."""
    return {each.name: _read(each) for each in _FOLDER.iterdir() if each.suffix in _TYPES and each.name != _SHELL}


def picture_file(path: Path) -> PageFile:
    """A JPEG or a PNG from elsewhere."""
    return _file(path.read_bytes(), path.suffix)


def shell(root: str, views: Sequence[str] = ("all",), *, opens: str = "try") -> PageFile:
    """The HTML in which everything else is shown.

    Args:
        root: the way from its address to the server's root, empty or ending in a slash. Nothing in the page is
            addressed from the root of the host, so that a proxy may serve it under any path.
        views: the ids of those that are shown; "all" stands for every one but those of what may be switched off.
        opens: the view that is shown when the address names none.
    """
    html = (_FOLDER / _SHELL).read_bytes().replace(_ROOT, root.encode())
    html = html.replace(_VIEWS, " ".join(views).encode()).replace(_OPENS, opens.encode())
    return _file(html, ".html")


def respond(file: PageFile, request: HttpRequest) -> Response[bytes]:
    """`file`, or only that the sender has it already."""
    packed = file.packed if "gzip" in request.headers.get("accept-encoding", "") else None
    etag = f'"{file.etag}"' if packed is None else f'"{file.etag}-gzip"'
    headers = {**HEADERS, "ETag": etag, "Vary": "Accept, Accept-Encoding"}
    if etag in request.headers.get("if-none-match", ""):
        return Response(b"", status_code=304, headers=headers, media_type=file.media_type)
    if packed is None:
        return Response(file.content, headers=headers, media_type=file.media_type)
    return Response(packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.media_type)


def wants_html(accept: str) -> bool:
    """Whether an `Accept` header names HTML, and JSON less: what browsers send, and health checkers do not."""
    wishes = dict(_wish(each) for each in accept.lower().split(","))
    return wishes.get("text/html", 0) > wishes.get("application/json", 0)


def _wish(text: str) -> tuple[str, float]:
    media_type, *parameters = (each.strip() for each in text.split(";"))
    quality = next((each[2:] for each in parameters if each.startswith("q=")), "1")
    try:
        return media_type, float(quality)
    except ValueError:
        return media_type, 0


def _read(path: Path) -> PageFile:
    return _file(path.read_bytes(), path.suffix)


def _file(content: bytes, suffix: str) -> PageFile:
    etag = hashlib.sha256(content).hexdigest()[:20]
    packed = None if suffix in _PICTURE_TYPES else gzip.compress(content, mtime=0)
    return PageFile(content=content, packed=packed, media_type=(_TYPES | _PICTURE_TYPES)[suffix], etag=etag)
