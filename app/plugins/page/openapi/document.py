"""Describe the service in OpenAPI 3.1, from the endpoints of its protocols."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app import __version__
from app.core.protocols.protocol import Endpoint

_JSON = "application/json"
_PARAMETER = re.compile(r"\{(?P<name>\w+):\w+\}")
SCHEMA_PREFIX = "#/components/schemas/"
_AUTHORIZATION_FAILURES = (401, 403, 429)
"""Status codes for missing or insufficient permissions, and for exceeded rates."""


class _Rejection(msgspec.Struct, frozen=True):
    """The expected and the received value."""

    error: str


_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key, or a JSON Web Token if the server accepts them",
    },
    "key": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "The same credential; overrides the other headers",
    },
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "The same credential as the password, with any user name",
    },
}

_REASONS = {
    400: "The request is invalid; the message names the field",
    401: "The request has no credential, or an unknown one",
    403: "The credential lacks a permission; the message names it",
    404: "The model or version does not exist",
    413: "The request exceeds a size limit",
    429: "Too many requests are queued, or the client exceeded its rate",
    500: "The model or the server failed",
    501: "JSON cannot represent numbers of this type, or the model does not support explanations",
    503: "The model is not ready",
}


def describe_service(operations: Mapping[str, Sequence[Endpoint]], *, secured: bool = False) -> dict[str, Any]:
    """Return the OpenAPI document of operations, by their protocol.

    A path that protocols share accepts and returns all their shapes.
    """
    all_operations = [operation for group in operations.values() for operation in group]
    types = (kind for operation in all_operations for kind in (operation.body, operation.answer, operation.error))
    body_types = list(dict.fromkeys(kind for kind in types if kind not in (None, bytes)))
    schemas, components = msgspec.json.schema_components(
        [*body_types, _Rejection], schema_hook=_any_object, ref_template=f"{SCHEMA_PREFIX}{{name}}"
    )
    schema_by_type = dict(zip([*body_types, _Rejection], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for tag, group in operations.items():
        for operation in group:
            path = _PARAMETER.sub(r"{\g<name>}", operation.path) + (f":{operation.verb}" if operation.verb else "")
            methods = paths.setdefault(path, {})
            method = operation.method.lower()
            # Generators name the functions of a client after it: post_v2_models_target_infer.
            operation_id = re.sub(r"\W+", "_", f"{method}{path}").rstrip("_")
            operation_object = {"operationId": operation_id, **_operation(tag, operation, schema_by_type, secured)}
            methods[method] = _merged(methods[method], operation_object) if method in methods else operation_object
    return {
        "openapi": "3.1.0",
        "info": {"title": "Charioteer", "version": __version__},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": components, **({"securitySchemes": _SCHEMES} if secured else {})},
    }


def _operation(tag: str, endpoint: Endpoint, schema_by_type: Mapping[Any, Any], secured: bool) -> dict[str, Any]:
    needs_credential = secured and endpoint.permission != "open"
    responses: dict[str, Any] = {
        "200": {"description": endpoint.summary, "content": _content(endpoint, schema_by_type)}
    }
    for status in sorted({*endpoint.failures, *(_AUTHORIZATION_FAILURES if needs_credential else ())}):
        responses[str(status)] = {
            "description": _REASONS[status],
            "content": {_JSON: {"schema": schema_by_type[endpoint.error or _Rejection]}},
        }
    operation: dict[str, Any] = {
        "tags": [tag],
        "summary": endpoint.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in _PARAMETER.findall(endpoint.path)
        ]
        + [
            {"name": field.name, "in": "query", "description": field.summary, "schema": dict(field.schema)}
            for field in endpoint.query
        ],
        "responses": responses,
    }
    if secured:
        # Any of the schemes is sufficient; the permission stands in the place of OAuth scopes.
        operation["security"] = [{name: [endpoint.permission]} for name in _SCHEMES] if needs_credential else []
    if endpoint.body is not None:
        bodies: dict[str, Any] = {_JSON: {"schema": schema_by_type[endpoint.body]}}
        bodies |= {media_type: {} for media_type in endpoint.media_types}
        operation["requestBody"] = {"required": endpoint.body_required, "content": bodies}
    return operation


def _content(endpoint: Endpoint, schema_by_type: Mapping[Any, Any]) -> dict[str, Any]:
    media_types = (*endpoint.media_types, *endpoint.answer_media_types)
    content: dict[str, Any] = {media_type: {} for media_type in media_types if "*" not in media_type}
    if endpoint.answer is bytes:
        return content
    return {_JSON: {"schema": {} if endpoint.answer is None else schema_by_type[endpoint.answer]}, **content}


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Merge an operation that two protocols serve for different targets."""
    merged = {**first, "tags": first["tags"] + second["tags"], "summary": f"{first['summary']}; {second['summary']}"}
    merged["responses"] = {**first["responses"], **second["responses"]}
    merged["responses"]["200"] = {
        "description": merged["summary"],
        "content": _either(first["responses"]["200"]["content"], second["responses"]["200"]["content"]),
    }
    if "requestBody" in first and "requestBody" in second:
        bodies = (first["requestBody"], second["requestBody"])
        merged["requestBody"] = {
            "required": all(body["required"] for body in bodies),
            "content": _either(*(body["content"] for body in bodies)),
        }
    return merged


def _either(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    schemas = [content[_JSON]["schema"] for content in (first, second)]
    combined = schemas[0] if schemas[0] == schemas[1] else {"anyOf": schemas}
    return {**first, **second, _JSON: {"schema": combined}}


def _any_object(unsupported_type: type) -> dict[str, Any]:
    """Return the schema of a type that msgspec has none for: records of any task, and values of any type."""
    return {"description": "any value"} if unsupported_type is object else {"type": "object"}
