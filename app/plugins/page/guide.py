"""Serve the guide: the site that a wheel contains, and that `make docs` writes in a clone."""

import mimetypes
from collections.abc import Mapping
from pathlib import Path

from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler

from app.core.protocols.protocol import HttpRequest
from app.core.server.auth.http_access import requires
from app.plugins.page.page_files import HEADERS

_APP = Path(__file__).parents[2]
_FOLDERS = (_APP / "guide", _APP.parent / "build" / "site")
"""Where a wheel and a clone have the site."""
_MISSING = "The guide is not built. Read the pages in the folder docs/ of the clone, or run `make docs` and restart.\n"

GUIDE_HEADERS: Mapping[str, str] = {
    **HEADERS,
    # The site has scripts and styles of its own in its pages, and loads nothing from other hosts.
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; frame-ancestors 'none'"
    ),
}


def guide_folder() -> Path | None:
    """Return the folder of the built site, or None if there is none."""
    return next((folder for folder in _FOLDERS if (folder / "index.html").is_file()), None)


def guide_handler(folder: Path | None) -> HTTPRouteHandler:
    """Return the handler of the files in `folder`; without a folder it says how to read the guide."""

    @get("/guide/{path:path}", sync_to_thread=True, opt=requires("read"))
    def show_guide(request: HttpRequest) -> Response[bytes]:
        if folder is None:
            return Response(_MISSING.encode(), status_code=404, media_type="text/plain", headers=HEADERS)
        file = (folder / str(request.path_params["path"]).lstrip("/")).resolve()
        if not file.is_relative_to(folder.resolve()) or not file.is_file():
            raise NotFoundException
        media_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        return Response(file.read_bytes(), media_type=media_type, headers=GUIDE_HEADERS)

    return show_guide
