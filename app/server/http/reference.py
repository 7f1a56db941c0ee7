"""Render the OpenAPI document as one HTML page without scripts or other files."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TEMPLATE = Path(__file__).with_name("reference.html.jinja").read_text(encoding="utf-8")
_STYLE = _TEMPLATE.partition("<style>")[2].partition("</style>")[0]
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""Response headers of the page: the browser loads and runs nothing except its own style."""

_SCHEMA_PREFIX = "#/components/schemas/"


def reference_page(document: Mapping[str, Any]) -> bytes:
    """Render an OpenAPI document: operations by tag, then schemas by name."""
    # Import late: it would slow every server start.
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    tag_descriptions = {tag["name"]: tag["description"] for tag in document["tags"]}
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            rendered = _operation(method, path, operation)
            for tag in operation["tags"]:
                groups.setdefault(tag, []).append(rendered)
    schemas = document["components"]["schemas"]
    return (
        environment.from_string(_TEMPLATE)
        .render(
            info=document["info"],
            groups=[(tag, tag_descriptions.get(tag, ""), operations) for tag, operations in groups.items()],
            schemas=[(name, _indented_json(schema), _schema_names(schema)) for name, schema in sorted(schemas.items())],
        )
        .encode()
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    permissions = {scope for entry in operation.get("security", ()) for scopes in entry.values() for scope in scopes}
    return {
        "method": method.upper(),
        "path": path,
        "anchor": re.sub(r"[^a-z0-9]+", "-", f"{method} {path}".lower()).strip("-"),
        "summary": operation["summary"],
        "permission": ", ".join(sorted(permissions)),
        "parameters": [
            (field["name"], field["in"], _compact_json(field["schema"]), field.get("description", ""))
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
        contents.append((media_type, names, "" if names or not schema else _compact_json(schema)))
    return contents


def _schema_names(schema: object) -> list[str]:
    """Return the names of the schemas that `schema` refers to, without duplicates."""
    names = re.findall(rf'"{_SCHEMA_PREFIX}([^"]+)"', json.dumps(schema))
    return list(dict.fromkeys(names))


def _compact_json(schema: object) -> str:
    return json.dumps(schema, ensure_ascii=False)


def _indented_json(schema: object) -> str:
    return json.dumps(schema, ensure_ascii=False, indent=2)
