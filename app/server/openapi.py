"""The service's description of itself, OpenAPI 3.1, made from what the protocols say of their endpoints."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app import __version__
from app.protocols.protocol import Endpoint, HttpListener, HttpProtocol

__all__ = ("describe_service",)

_JSON = "application/json"
_PARAMETER = re.compile(r"\{(?P<name>\w+):\w+\}")
_REFERENCE = "#/components/schemas/{name}"


class _Refusal(msgspec.Struct, frozen=True):
    """What was expected, and what came."""

    error: str


_REASONS = {
    400: "The request cannot be used; the sentence names the field",
    404: "There is no such model, or version",
    413: "The request is larger than a limit",
    429: "As many requests wait as may",
    500: "The model, or the server, failed",
    501: "Numbers of this type have no form in JSON, or the model cannot be explained",
    503: "The model is not ready",
}


def describe_service(
    protocols: Mapping[HttpProtocol, Sequence[Endpoint]], listeners: Sequence[HttpListener] = ()
) -> dict[str, Any]:
    """The OpenAPI document of every endpoint. A path on which protocols meet takes and gives what any of them does.

    Args:
        protocols: what each of them serves.
        listeners: those among them that have a port of their own, of which the document's tags say so.
    """
    endpoints = [each for served in protocols.values() for each in served]
    given = (kind for each in endpoints for kind in (each.body, each.answer, each.refusal) if kind is not None)
    kinds = list(dict.fromkeys(given))
    schemas, components = msgspec.json.schema_components(
        [*kinds, _Refusal], schema_hook=_any_object, ref_template=_REFERENCE
    )
    known = dict(zip([*kinds, _Refusal], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for protocol, served in protocols.items():
        for endpoint in served:
            path = _PARAMETER.sub(r"{\g<name>}", endpoint.path) + (f":{endpoint.verb}" if endpoint.verb else "")
            operations = paths.setdefault(path, {})
            described = _operation(protocol.name, endpoint, known)
            method = endpoint.method.lower()
            operations[method] = _merged(operations[method], described) if method in operations else described
    return {
        "openapi": "3.1.0",
        "info": {"title": "Charioteer", "version": __version__},
        "tags": [
            {"name": each.name, "description": f"{each.title}, on a port of its own: not served on this one"}
            for each in listeners
        ],
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": components},
    }


def _operation(protocol: str, endpoint: Endpoint, known: Mapping[Any, Any]) -> dict[str, Any]:
    answer: Any = {} if endpoint.answer is None else known[endpoint.answer]
    content: dict[str, Any] = {_JSON: {"schema": answer}}
    content |= {media_type: {} for media_type in endpoint.media_types if "*" not in media_type}
    responses: dict[str, Any] = {"200": {"description": endpoint.summary, "content": content}}
    for status in endpoint.failures:
        responses[str(status)] = {
            "description": _REASONS[status],
            "content": {_JSON: {"schema": known[endpoint.refusal or _Refusal]}},
        }
    operation: dict[str, Any] = {
        "tags": [protocol],
        "summary": endpoint.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in _PARAMETER.findall(endpoint.path)
        ],
        "responses": responses,
    }
    if endpoint.body is not None:
        bodies: dict[str, Any] = {_JSON: {"schema": known[endpoint.body]}}
        bodies |= {media_type: {} for media_type in endpoint.media_types}
        operation["requestBody"] = {"content": bodies}
    return operation


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
