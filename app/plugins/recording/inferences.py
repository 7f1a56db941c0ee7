"""Serve recorded inferences over HTTP: pages, single inferences and their images."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import msgspec
from cyclopts import Parameter
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from prometheus_client import CollectorRegistry, Counter

from app.core.engine.scheduling.background import Background
from app.core.protocols.protocol import Endpoint, HttpRequest, QueryParameter, read_operation
from app.core.protocols.request_info import RETRY_AFTER
from app.core.protocols.status import http_status
from app.core.server.auth.http_access import requires
from app.plugins.recording.inference import InferencePage, RecordedInference
from app.plugins.recording.inference_query import InferenceQuery
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.request import validation_error

if TYPE_CHECKING:
    from app.plugins.recording.query.reader import RecordingReader

_PATH = "/inferences"
_THREADS = 2
_MAX_WAITING = 14
"""Queries that wait: a browser requests six images at once, and there can be several users."""
_MAX_LIMIT = 500
_DEFAULT_LIMIT = 50
_MAX_CURSOR = 10**18
_SCORE = {"type": "number", "minimum": 0, "maximum": 1}
_SCHEMAS = {
    "where": {"type": "array", "items": {"type": "string"}},
    "min_score": _SCORE,
    "max_score": _SCORE,
    "limit": {"type": "integer", "minimum": 1, "maximum": _MAX_LIMIT, "default": _DEFAULT_LIMIT},
}
_EXPECTED = {
    "min_score": "a score within 0..1",
    "max_score": "a score within 0..1",
    "limit": f"a whole number from 1 to {_MAX_LIMIT}",
    "after": "the value of next from the previous page",
}


@dataclass(frozen=True, kw_only=True)
class _PageQuery(InferenceQuery):
    """The parameters of ``GET /inferences``."""

    limit: Annotated[
        int, msgspec.Meta(ge=1, le=_MAX_LIMIT), Parameter(help="Maximum number of inferences on a page.")
    ] = _DEFAULT_LIMIT
    after: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=_MAX_CURSOR)] | None,
        Parameter(help="Start of the page: the value of next in the previous page."),
    ] = None


_PARAMETERS = {
    name: QueryParameter(
        name=name.replace("_", "-"),
        summary=hint.__metadata__[-1].help,
        schema=_SCHEMAS.get(name, {"type": "string"}),
    )
    for name, hint in get_type_hints(_PageQuery, include_extras=True).items()
}

# Browsers must treat data from clients as an image and nothing else.
_IMAGE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, max-age=3600",
}
_DATA_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Inferences:
    """Provide the routes under ``/inferences``; they answer 404 with a reason if recordings cannot be read.

    The first request opens the store with `open_reader`.
    """

    def __init__(
        self,
        open_reader: "Callable[[], RecordingReader] | None",
        unavailable_reason: str = "",
        metrics: CollectorRegistry | None = None,
    ) -> None:
        self._open_reader = open_reader
        self._unavailable_reason = unavailable_reason
        self._lane = Background("queries of recordings", _MAX_WAITING, threads=_THREADS)
        self._refused = Counter(
            "charioteer_queries_refused",
            "Queries of recordings that were rejected because too many were in flight.",
            registry=metrics or CollectorRegistry(),
        )
        self._reader: RecordingReader | None = None

    @property
    def is_available(self) -> bool:
        """Return whether recordings can be read."""
        return self._open_reader is not None

    @property
    def handlers(self) -> list[HTTPRouteHandler]:
        """Return the handlers of ``GET /inferences``, ``/inferences/<id>`` and ``/inferences/<id>/image``."""

        @get(_PATH, opt=requires("read"))
        async def show_page(request: HttpRequest) -> Response[bytes]:
            return await self._answer(lambda reader: _page(reader, list(request.query_params.multi_items())))

        @get(f"{_PATH}/{{id:str}}", opt=requires("read"))
        async def show_one(request: HttpRequest) -> Response[bytes]:
            name = request.path_params["id"]
            return await self._answer(lambda reader: _json(reader.get(name)))

        @get(f"{_PATH}/{{id:str}}/image", opt=requires("read"))
        async def show_image(request: HttpRequest) -> Response[bytes]:
            name = request.path_params["id"]
            return await self._answer(lambda reader: _image_response(reader, name))

        return [show_page, show_one, show_image]

    @property
    def operations(self) -> Sequence[Endpoint]:
        """Return the OpenAPI operations of the handlers."""
        read, image = partial(read_operation, failures=(400, 404, 429)), "The image of one recorded inference"
        return (
            read(_PATH, "Recorded inferences, the newest first", query=[*_PARAMETERS.values()], answer=InferencePage),
            read(f"{_PATH}/{{id:str}}", "One recorded inference", answer=RecordedInference),
            read(f"{_PATH}/{{id:str}}/image", image, answer=bytes, media_types=_MEDIA_TYPES),
        )

    def close(self) -> None:
        """Reject further queries."""
        self._lane.close(0)

    async def _answer(self, respond: "Callable[[RecordingReader], Response[bytes]]") -> Response[bytes]:
        def query() -> Response[bytes]:
            if self._open_reader is None:
                raise InferenceError(ErrorKind.MODEL_NOT_FOUND, self._unavailable_reason)
            # Two first requests may each open one, which is harmless.
            self._reader = self._reader or self._open_reader()
            return respond(self._reader)

        try:
            return await self._lane.run(query)
        except InferenceError as error:
            headers = _DATA_HEADERS
            if error.kind is ErrorKind.OVERLOADED:
                self._refused.inc()
                headers = {**headers, RETRY_AFTER: "1"}
            body = msgspec.json.encode({"error": str(error)})
            return Response(body, status_code=http_status(error.kind), media_type="application/json", headers=headers)


def _page(reader: "RecordingReader", parameters: list[tuple[str, Any]]) -> Response[bytes]:
    values: dict[str, Any] = {"where": []}
    for raw_name, value in parameters:
        name = raw_name.replace("-", "_")
        if name not in _PARAMETERS:
            known = ", ".join(sorted(parameter.name for parameter in _PARAMETERS.values()))
            raise invalid(f"Expected one of {known}", quote_value(raw_name))
        if name == "where":
            values[name].append(value)
        elif name in values:
            raise invalid("Expected it once; only where may be repeated", _PARAMETERS[name].name)
        else:
            values[name] = value
    try:
        query = msgspec.convert(values, _PageQuery, strict=False)
    except msgspec.ValidationError as error:
        name = validation_error(error).path
        raise invalid(f"Expected {_EXPECTED[name]}, got {quote_value(values[name])}", _PARAMETERS[name].name) from None
    return _json(reader.page(query, query.limit, query.after))


def _image_response(reader: "RecordingReader", name: str) -> Response[bytes]:
    inference = reader.get(name)
    data = reader.image(inference)
    if data is None:
        raise InferenceError(ErrorKind.MODEL_NOT_FOUND, f"The image of {quote_value(name)} is not stored")
    known = [media_type for start, media_type in _MAGIC_BYTES.items() if re.match(start, data)]
    if known:
        return Response(data, media_type=known[0], headers=_IMAGE_HEADERS)
    headers = {**_IMAGE_HEADERS, "Content-Disposition": "attachment"}
    return Response(data, media_type="application/octet-stream", headers=headers)


_MAGIC_BYTES = {
    rb"\xff\xd8\xff": "image/jpeg",
    rb"\x89PNG\r\n\x1a\n": "image/png",
    rb"GIF8": "image/gif",
    rb"BM": "image/bmp",
    rb"RIFF[\s\S]{4}WEBP": "image/webp",
    rb"[\s\S]{4}ftypavi[fs]": "image/avif",
}
"""Patterns of the first bytes of formats that browsers show."""

_MEDIA_TYPES = (*_MAGIC_BYTES.values(), "application/octet-stream")


def _json(content: object) -> Response[bytes]:
    return Response(msgspec.json.encode(content), media_type="application/json", headers=_DATA_HEADERS)
