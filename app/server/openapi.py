"""The service's description of itself, OpenAPI 3.1, made from what the protocols say of their endpoints."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app import __version__
from app.protocols.protocol import HttpListener, Operation, QueryParameter

__all__ = ("OWN_OPERATIONS", "describe_service")

_JSON = "application/json"
_PARAMETER = re.compile(r"\{(?P<name>\w+):\w+\}")
_REFERENCE = "#/components/schemas/{name}"
_REFUSED = (401, 403, 429)
"""What those are told who may not ask, or not so often."""


class _Refusal(msgspec.Struct, frozen=True):
    """What was expected, and what came."""

    error: str


class _Alive(msgspec.Struct, frozen=True):
    """What the server says of itself: the rest only to those who may infer."""

    status: str
    models: list[str] = []
    protocols: list[str] = []


OWN_OPERATIONS = (
    Operation(
        method="GET", path="/", summary="That the server lives, and what it serves", answer=_Alive, permission="open"
    ),
    Operation(
        method="GET",
        path="/metrics",
        summary="Metrics, in Prometheus' text format",
        answer=bytes,
        media_types=("text/plain",),
        permission="read",
    ),
    Operation(method="GET", path="/schema", summary="This document", permission="read"),
    Operation(method="GET", path="/schema/openapi.json", summary="This document", permission="read"),
)
"""What the server does beside its protocols and its page."""

_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key, or a JSON Web Token where those are taken"},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same; goes before the others"},
    "basic": {"type": "http", "scheme": "basic", "description": "The same as the password, with any name"},
}

_REASONS = {
    400: "The request cannot be used; the sentence names the field",
    401: "No key was shown, or none that is known here",
    403: "The key is not for this; the sentence says what it needs",
    404: "There is no such model, or version",
    413: "The request is larger than a limit",
    429: "As many requests wait as may, or the key has had its share",
    500: "The model, or the server, failed",
    501: "Numbers of this type have no form in JSON, or the model cannot be explained",
    503: "The model is not ready",
}


def describe_service(
    operations: Mapping[str, Sequence[Operation]],
    listeners: Sequence[HttpListener] = (),
    *,
    secured: bool = False,
) -> dict[str, Any]:
    """The OpenAPI document of every operation. A path on which protocols meet takes and gives what any of them does.

    Args:
        operations: what each protocol serves, by its name.
        listeners: those among them that have a port of their own, of which the document's tags say so.
        secured: whether callers have to show who they are.
    """
    every = [each for served in operations.values() for each in served]
    given = (kind for each in every for kind in (each.body, each.answer, each.refusal))
    kinds = list(dict.fromkeys(kind for kind in given if kind not in (None, bytes)))
    schemas, components = msgspec.json.schema_components(
        [*kinds, _Refusal], schema_hook=_any_object, ref_template=_REFERENCE
    )
    known = dict(zip([*kinds, _Refusal], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for tag, served in operations.items():
        for each in served:
            path = _PARAMETER.sub(r"{\g<name>}", each.path) + (f":{each.verb}" if each.verb else "")
            methods = paths.setdefault(path, {})
            described = _operation(tag, each, known, secured)
            method = each.method.lower()
            methods[method] = _merged(methods[method], described) if method in methods else described
    return {
        "openapi": "3.1.0",
        "info": {"title": "Charioteer", "version": __version__},
        "tags": [
            {"name": each.name, "description": f"{each.title}, on a port of its own: not served on this one"}
            for each in listeners
        ],
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": components, **({"securitySchemes": _SCHEMES} if secured else {})},
    }


def _operation(tag: str, said: Operation, known: Mapping[Any, Any], secured: bool) -> dict[str, Any]:
    asks = secured and said.permission != "open"
    responses: dict[str, Any] = {"200": {"description": said.summary, "content": _content(said, known)}}
    for status in sorted({*said.failures, *(_REFUSED if asks else ())}):
        responses[str(status)] = {
            "description": _REASONS[status],
            "content": {_JSON: {"schema": known[said.refusal or _Refusal]}},
        }
    operation: dict[str, Any] = {
        "tags": [tag],
        "summary": said.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in _PARAMETER.findall(said.path)
        ]
        + [_in_query(each) for each in said.query],
        "responses": responses,
    }
    if secured:
        # With any of them; what has to be allowed stands where OAuth has its scopes.
        operation["security"] = [{name: [said.permission]} for name in _SCHEMES] if asks else []
    if said.body is not None:
        bodies: dict[str, Any] = {_JSON: {"schema": known[said.body]}}
        bodies |= {media_type: {} for media_type in said.media_types}
        operation["requestBody"] = {"content": bodies}
    return operation


def _content(said: Operation, known: Mapping[Any, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {media_type: {} for media_type in said.media_types if "*" not in media_type}
    if said.answer is bytes:
        return told
    return {_JSON: {"schema": {} if said.answer is None else known[said.answer]}, **told}


def _in_query(parameter: QueryParameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.summary,
        "schema": dict(parameter.schema),
    }


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """One operation that two protocols serve for different targets."""
    merged = {**first, "tags": first["tags"] + second["tags"], "summary": f"{first['summary']}; {second['summary']}"}
    merged["responses"] = {**first["responses"], **second["responses"]}
    merged["responses"]["200"] = {
        "description": merged["summary"],
        "content": _either(first["responses"]["200"]["content"], second["responses"]["200"]["content"]),
    }
    if "requestBody" in first and "requestBody" in second:
        merged["requestBody"] = {"content": _either(first["requestBody"]["content"], second["requestBody"]["content"])}
    return merged


def _either(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    schemas = [content[_JSON]["schema"] for content in (first, second)]
    both = schemas[0] if schemas[0] == schemas[1] else {"anyOf": schemas}
    return {**first, **second, _JSON: {"schema": both}}


def _any_object(kind: type) -> dict[str, Any]:
    """The schema of a type that msgspec has none for: records of any task, and values of any kind."""
    return {"description": "any value"} if kind is object else {"type": "object"}
