"""Serve recorded inferences over HTTP: pages, single inferences and their images."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from prometheus_client import CollectorRegistry, Counter

from app.core.engine.scheduling.background import Background
from app.core.protocols.protocol import Endpoint, HttpRequest, QueryParameter, read_operation
from app.core.protocols.request_info import RETRY_AFTER
from app.core.protocols.status import http_status
from app.core.server.auth.http_access import requires
from app.plugins.recording.inference import RecordedInference
from app.plugins.recording.inference_query import InferenceQuery
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value

if TYPE_CHECKING:
    from app.plugins.recording.query.reader import RecordingReader

_PATH = "/inferences"
_THREADS = 2
_MAX_WAITING = 14
"""Queries that wait: a browser requests six images at once, and there can be several users."""
_TOO_MANY_REQUESTS = 429
_MAX_LIMIT = 500
_DEFAULT_LIMIT = 50
_MAX_DIGITS = 18
_SCORE = {"type": "number", "minimum": 0, "maximum": 1}
_SCHEMAS = {
    "where": {"type": "array", "items": {"type": "string"}},
    "min-score": _SCORE,
    "max-score": _SCORE,
    "limit": {"type": "integer", "minimum": 1, "maximum": _MAX_LIMIT, "default": _DEFAULT_LIMIT},
}
_SUMMARIES = {
    name.replace("_", "-"): hint.__metadata__[0].help
    for name, hint in get_type_hints(InferenceQuery, include_extras=True).items()
} | {
    "limit": "Maximum number of inferences on a page.",
    "after": "Start of the page: the value of next in the previous page.",
}
_PARAMETERS = [
    QueryParameter(name=name, summary=summary, schema=_SCHEMAS.get(name, {"type": "string"}))
    for name, summary in _SUMMARIES.items()
]

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
            return await self._answer(
                lambda reader: _json(inference) if (inference := reader.get(name)) else _not_found(name)
            )

        @get(f"{_PATH}/{{id:str}}/image", opt=requires("read"))
        async def show_image(request: HttpRequest) -> Response[bytes]:
            name = request.path_params["id"]
            return await self._answer(lambda reader: _image_response(reader, name))

        return [show_page, show_one, show_image]

    @property
    def operations(self) -> Sequence[Endpoint]:
        """Return the OpenAPI operations of the handlers."""
        page = msgspec.defstruct("InferencePage", [("inferences", list[RecordedInference]), ("next", str | None)])
        read, image = partial(read_operation, failures=(400, 404, 429)), "The image of one recorded inference"
        return (
            read(_PATH, "Recorded inferences, the newest first", query=_PARAMETERS, answer=page),
            read(f"{_PATH}/{{id:str}}", "One recorded inference", answer=RecordedInference),
            read(f"{_PATH}/{{id:str}}/image", image, answer=bytes, media_types=_MEDIA_TYPES),
        )

    def close(self) -> None:
        """Reject further queries."""
        self._lane.close(0)

    async def _answer(self, respond: "Callable[[RecordingReader], Response[bytes]]") -> Response[bytes]:
        open_reader = self._open_reader
        if open_reader is None:
            return _error(404, self._unavailable_reason)

        def query() -> Response[bytes]:
            # Two first requests may each open one, which is harmless.
            self._reader = self._reader or open_reader()
            return respond(self._reader)

        try:
            return await self._lane.run(query)
        except InferenceError as error:
            if error.kind is ErrorKind.OVERLOADED:
                self._refused.inc()
            return _error(http_status(error.kind), str(error))


def _page(reader: "RecordingReader", parameters: list[tuple[str, Any]]) -> Response[bytes]:
    values: dict[str, Any] = {}
    where: list[str] = []
    for raw_name, value in parameters:
        name = raw_name.replace("_", "-")
        if name not in _SUMMARIES:
            raise invalid(f"Expected one of {', '.join(sorted(_SUMMARIES))}", quote_value(raw_name))
        if name == "where":
            where.append(str(value))
        elif name in values:
            raise invalid("Expected it once; only where may be repeated", name)
        else:
            values[name] = str(value)
    for name in ("min-score", "max-score"):
        if (text := values.get(name)) is not None:
            try:
                values[name] = float(text)
            except ValueError:
                raise invalid(f"Expected a score within 0..1, got {quote_value(text)}", name) from None
    limit = _whole_number(values, "limit", f"a whole number from 1 to {_MAX_LIMIT}", 1, _MAX_LIMIT) or _DEFAULT_LIMIT
    after = _whole_number(values, "after", "the value of next from the previous page", 0, 10**_MAX_DIGITS)
    query = InferenceQuery(where=where, **{name.replace("-", "_"): value for name, value in values.items()})
    inferences, following = reader.page(query, limit, after)
    return _json({"inferences": inferences, "next": None if following is None else str(following)})


def _whole_number(values: dict[str, Any], name: str, expected: str, smallest: int, largest: int) -> int | None:
    """Remove a parameter, and return its value; None without it."""
    text: str | None = values.pop(name, None)
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    if not (is_number and smallest <= int(text) <= largest):
        raise invalid(f"Expected {expected}, got {quote_value(text)}", name)
    return int(text)


def _image_response(reader: "RecordingReader", name: str) -> Response[bytes]:
    inference = reader.get(name)
    if inference is None:
        return _not_found(name)
    data = reader.image(inference)
    if data is None:
        return _error(404, f"The image of {quote_value(name)} is not stored")
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


def _not_found(name: str) -> Response[bytes]:
    return _error(404, f"There is no inference {quote_value(name)}")


def _json(content: object) -> Response[bytes]:
    return Response(msgspec.json.encode(content), media_type="application/json", headers=_DATA_HEADERS)


def _error(status: int, message: str) -> Response[bytes]:
    headers = {**_DATA_HEADERS, RETRY_AFTER: "1"} if status == _TOO_MANY_REQUESTS else _DATA_HEADERS
    body = msgspec.json.encode({"error": message})
    return Response(body, status_code=status, media_type="application/json", headers=headers)
