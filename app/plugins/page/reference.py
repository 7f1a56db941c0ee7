"""Show the OpenAPI document of the server as a page without scripts."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

from app.core.protocols.protocol import HttpRequest, read_operation
from app.core.server.auth.http_access import requires
from app.plugins.openapi.document import SCHEMA_PREFIX, document_of

_TEMPLATE = Path(__file__).with_name("reference.html.jinja").read_text(encoding="utf-8")
_STYLE = _TEMPLATE.partition("<style>")[2].partition("</style>")[0]
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

REFERENCE_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Response headers of the page: the browser loads and runs nothing except its own style."""

REFERENCE_OPERATION = read_operation("/docs", "This document as a page", answer=bytes, media_types=("text/html",))


def reference_handler() -> HTTPRouteHandler:
    """Return the handler of the page."""

    @get("/docs", sync_to_thread=True, opt=requires("read"))
    def show_reference(request: HttpRequest) -> Response[bytes]:
        return Response(reference_page(document_of(request)), media_type="text/html", headers=REFERENCE_HEADERS)

    return show_reference


def reference_page(document: Mapping[str, Any]) -> bytes:
    """Render an OpenAPI document: operations by tag, then schemas by name."""
    # Import late: it would slow every server start.
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    filters = {"anchor": _anchor, "names": _schema_names, "permissions": _permissions, "written": _json_text}
    environment.filters.update(filters)
    groups: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for tag in operation["tags"]:
                groups.setdefault(tag, []).append((method, path, operation))
    descriptions = {tag["name"]: tag["description"] for tag in document["tags"]}
    page = environment.from_string(_TEMPLATE).render(
        info=document["info"],
        groups=[(tag, descriptions.get(tag, ""), operations) for tag, operations in groups.items()],
        schemas=document["components"]["schemas"],
    )
    return page.encode()


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _json_text(schema: object, indent: int | None = None) -> str:
    return json.dumps(schema, ensure_ascii=False, indent=indent)


def _permissions(operation: Mapping[str, Any]) -> str:
    scopes = {scope for entry in operation.get("security", ()) for scopes in entry.values() for scope in scopes}
    return ", ".join(sorted(scopes))


def _schema_names(schema: object) -> list[str]:
    """Return the names of the schemas that `schema` refers to, without duplicates."""
    return list(dict.fromkeys(re.findall(rf'"{SCHEMA_PREFIX}([^"]+)"', json.dumps(schema))))
