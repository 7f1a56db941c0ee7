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
    tag_descriptions = {tag["name"]: tag["description"] for tag in document["tags"]}
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            rendered = _rendered_operation(method, path, operation)
            for tag in operation["tags"]:
                groups.setdefault(tag, []).append(rendered)
    schemas = document["components"]["schemas"]
    return (
        environment.from_string(_TEMPLATE)
        .render(
            info=document["info"],
            groups=[(tag, tag_descriptions.get(tag, ""), operations) for tag, operations in groups.items()],
            schemas=[
                (name, _json_text(schema, indent=2), _schema_names(schema)) for name, schema in sorted(schemas.items())
            ],
        )
        .encode()
    )


def _rendered_operation(method: str, path: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    permissions = {scope for entry in operation.get("security", ()) for scopes in entry.values() for scope in scopes}
    return {
        "method": method.upper(),
        "path": path,
        "anchor": re.sub(r"[^a-z0-9]+", "-", f"{method} {path}".lower()).strip("-"),
        "summary": operation["summary"],
        "permission": ", ".join(sorted(permissions)),
        "parameters": [
            (field["name"], field["in"], _json_text(field["schema"]), field.get("description", ""))
            for field in operation["parameters"]
        ],
        "bodies": _contents(operation.get("requestBody", {})),
        "responses": [
            (status, response["description"], _contents(response))
            for status, response in operation["responses"].items()
        ],
    }


def _contents(container: Mapping[str, Any]) -> list[tuple[str, list[str], str]]:
    """Return each media type with the schemas that it names, or with its inline schema if it names none."""
    contents: list[tuple[str, list[str], str]] = []
    for media_type, content in container.get("content", {}).items():
        schema = content.get("schema", {})
        names = _schema_names(schema)
        contents.append((media_type, names, "" if names or not schema else _json_text(schema)))
    return contents


def _schema_names(schema: object) -> list[str]:
    """Return the names of the schemas that `schema` refers to, without duplicates."""
    names = re.findall(rf'"{SCHEMA_PREFIX}([^"]+)"', json.dumps(schema))
    return list(dict.fromkeys(names))


def _json_text(schema: object, indent: int | None = None) -> str:
    return json.dumps(schema, ensure_ascii=False, indent=indent)
