"""The page's files, read once, and the headers that they go out with."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec
from litestar import Response

from app.protocols.protocol import HttpRequest

__all__ = ("HEADERS", "PageFile", "read_files", "respond", "shell", "wants_html")

# Everything comes from this server, nothing is inline, and nobody may frame the page.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

_FOLDER = Path(__file__).parent / "static"
_SHELL = "index.html"
_ROOT = b"{root}"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class PageFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, ready to be sent."""

    content: bytes
    media_type: str
    etag: str


def read_files() -> Mapping[str, PageFile]:
    """Every file of the page by its name, the shell aside."""
    return {each.name: _read(each) for each in _FOLDER.iterdir() if each.suffix in _TYPES and each.name != _SHELL}


def shell(root: str) -> PageFile:
    """The HTML in which everything else is shown.

    Args:
        root: the way from its address to the server's root, empty or ending in a slash. Nothing in the page is
            addressed from the root of the host, so that a proxy may serve it under any path.
    """
    return _file((_FOLDER / _SHELL).read_bytes().replace(_ROOT, root.encode()), ".html")


def respond(file: PageFile, request: HttpRequest) -> Response[bytes]:
    """`file`, or only that the sender has it already."""
    headers = {**HEADERS, "ETag": file.etag, "Vary": "Accept"}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(b"", status_code=304, headers=headers, media_type=file.media_type)
    return Response(file.content, headers=headers, media_type=file.media_type)


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
    etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    return PageFile(content=content, media_type=_TYPES[suffix], etag=etag)
