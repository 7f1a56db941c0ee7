"""Read the files of the page and its sample images, and send them with security headers."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

import msgspec
from litestar import Response

from app.core.hooks import Page
from app.core.plugin_loading import PluginError
from app.core.protocols.protocol import HttpRequest
from app.core.settings.server import DEMO_IMAGES
from tasks.task import Geometry, InputKind, TaskType, all_task_types

# Everything comes from this server, nothing is inline, and no site may frame the page. Images that the page creates
# from dropped files are blobs.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
    # The page may use the camera with the user's consent, and no other device.
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=(), display-capture=(), usb=(), serial=()",
}

_FOLDER = Path(__file__).parent / "static"
_SHELL = "index.html"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_IMAGE_TYPES = {".jpg": "image/jpeg", ".png": "image/png"}
_SAMPLES: Mapping[str, tuple[Sequence[Geometry | InputKind | None], Sequence[str]]] = {
    "portrait.jpg": (("box", "contour"), ("face", "person")),
    "scene.jpg": (("box", "contour"), ("circle", "square", "star")),
    "shape.jpg": ((None, "box", "contour"), ("star",)),
    "oriented.jpg": (("oriented",), ("arrow", "bar", "ellipse")),
    "photo.jpg": (("box", "contour", None, "oriented"), ("cat",)),
    "sign.jpg": (("oriented",), ("text",)),
    "line.jpg": (("question",), ("ctc",)),
}
"""The geometries or inputs of the tasks that each sample suits, and words in a model's labels, or its layout."""


class PageFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file with its response headers.

    Attributes:
        content: its bytes; the application compresses them for clients that accept gzip.
        etag: entity tag of the content, without quotes.
    """

    content: bytes
    media_type: str
    etag: str


def read_files(pages: Iterable[Page]) -> Mapping[str, PageFile]:
    """Return every file of the pages of plugins by its name, except the shell.

    Raise PluginError if a name exists twice.
    """
    files: dict[str, PageFile] = {}
    for path in (path for page in pages for path in page.folder.iterdir()):
        if path.name in files:
            raise PluginError(f"The file {path} of the page exists in another plugin already")
        if path.suffix in _TYPES and path.name != _SHELL:
            files[path.name] = _page_file(path.read_bytes(), path.suffix)
    return files


def render_shell(pages: Mapping[str, Page], enabled: Collection[str]) -> PageFile:
    """Return the HTML that holds all views. Its addresses are relative, so that a proxy can serve it under any path.

    Args:
        pages: of all plugins, by the name of the plugin.
        enabled: ids of the views that this server has; it always has those of the page itself.
    """
    tasks = {
        str(task_type): {"takes": task_type.takes, "returns": task_type.returns, "geometry": task_type.geometry}
        for task_type in all_task_types()
    }
    views = sorted((view for page in pages.values() for view in page.views), key=lambda view: view.order)
    shown = {*(view.id for view in pages["page"].views), *enabled}
    shown |= {view.within for view in views if view.id in shown}
    values = {
        "views": [view for view in views if view.id in shown],
        "requests": {protocol: file for page in pages.values() for protocol, file in page.requests.items()},
        "parts": [part for page in pages.values() for part in page.parts.items()],
        "tasks": tasks,
    }
    html = (_FOLDER / _SHELL).read_text(encoding="utf-8")
    for name, value in values.items():
        html = html.replace(f"{{{name}}}", escape(msgspec.json.encode(value).decode()))
    return _page_file(html.encode(), ".html")


def file_response(file: PageFile, request: HttpRequest) -> Response[bytes]:
    """Return a response with `file`, or 304 if the client has it already."""
    etag = f'"{file.etag}"'
    headers = {**HEADERS, "ETag": f"W/{etag}", "Vary": "Accept, Accept-Encoding"}
    if etag in request.headers.get("if-none-match", ""):
        return Response(b"", status_code=304, headers=headers, media_type=file.media_type)
    return Response(file.content, headers=headers, media_type=file.media_type)


def _page_file(content: bytes, suffix: str) -> PageFile:
    etag = hashlib.sha256(content).hexdigest()[:20]
    return PageFile(content=content, media_type=(_TYPES | _IMAGE_TYPES)[suffix], etag=etag)


class PageSample(msgspec.Struct, frozen=True, kw_only=True):
    """A sample image.

    Attributes:
        task_types: task types that this image suits.
        shows: words of the labels that a model finds in it, or its layout.
    """

    name: str
    task_types: Sequence[str]
    shows: Sequence[str]


def samples() -> Sequence[PageSample]:
    """Return the sample images of the demo."""
    of_images = [task_type for task_type in TaskType if task_type.takes in ("image", "question")]
    return [
        PageSample(
            name=name,
            task_types=[str(task) for task in of_images if {task.geometry, task.takes} & {*geometries}],
            shows=shows,
        )
        for name, (geometries, shows) in _SAMPLES.items()
    ]


def read_sample(name: str) -> PageFile | None:
    """Return the sample image called `name`, or None if there is none."""
    file = DEMO_IMAGES / name
    return _page_file(file.read_bytes(), file.suffix) if name in _SAMPLES else None
