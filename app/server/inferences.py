"""Recorded inferences over HTTP: pages of them, one, and its picture."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

from app.protocols.protocol import HttpRequest, Operation, QueryParameter
from app.protocols.status import http_status
from app.recording.query import QueryText, read_cursor, read_query
from app.server.access.http import needs
from tasks.exchange.error import InferenceError, brief, invalid

if TYPE_CHECKING:
    from app.recording.inference import RecordedInference
    from app.recording.query_reader import Reader

__all__ = ("Inferences",)

_PATH = "/inferences"
_MOST = 500
_USUAL = 50
_TEXTS = {
    "since": "from this moment on: 2026-11-05, 2026-11-05T12:30:00Z, or how long ago, such as 2h or 7d",
    "until": "before this moment",
    "model": "of this model",
    "protocol": "over this protocol",
    "task-type": "of models of this task type",
    "request-id": "of this request",
    "base-id": "of this base id of Chariot's",
    "label": "in which this label was found",
    "error": "that failed so; any for whatever failed, none for what did not",
    "digest": "of the picture with this SHA-256",
    "near": "taken near: latitude,longitude,kilometres",
    "box": "taken within: south,west,north,east",
    "polygon": "taken within: lat,lon lat,lon ..., or GeoJSON",
}
_SCORES = {"min-score": "found with this score or a better one", "max-score": "found with this score or none better"}
_PAGING = ("limit", "after")
_PARAMETERS = (
    *(QueryParameter(name=name, summary=f"Those {summary}") for name, summary in _TEXTS.items()),
    *(
        QueryParameter(name=name, summary=f"Those {summary}", schema={"type": "number", "minimum": 0, "maximum": 1})
        for name, summary in _SCORES.items()
    ),
    QueryParameter(
        name="where",
        summary='Those whose metadata are so, such as camera = "north" and altitude > 100',
        schema={"type": "array", "items": {"type": "string"}},
    ),
    QueryParameter(
        name="limit",
        summary="So many at most",
        schema={"type": "integer", "minimum": 1, "maximum": _MOST, "default": _USUAL},
    ),
    QueryParameter(name="after", summary="Those behind this place: what next was in the page before"),
)

# What a sender sent is shown as a picture, and as nothing else.
_PICTURE_HEADERS = {
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
    """The routes below ``/inferences``; they answer 404 with a sentence where there is nothing to read.

    Args:
        open_reader: opens the store when it is first asked for; None where nothing may be read.
        reason: why nothing may be read.
    """

    def __init__(self, open_reader: "Callable[[], Reader] | None", reason: str = "") -> None:
        self._open = open_reader
        self._reason = reason
        self._reader: Reader | None = None
        self._opening = threading.Lock()

    @property
    def offered(self) -> bool:
        """Whether there is anything to read."""
        return self._open is not None

    @property
    def handlers(self) -> list[HTTPRouteHandler]:
        """``GET /inferences``, ``/inferences/<id>`` and ``/inferences/<id>/image``."""

        @get(_PATH, sync_to_thread=True, opt=needs("read"))
        def show_page(request: HttpRequest) -> Response[bytes]:
            return self._answer(lambda reader: _page(reader, list(request.query_params.multi_items())))

        @get(f"{_PATH}/{{id:str}}", sync_to_thread=True, opt=needs("read"))
        def show_one(request: HttpRequest) -> Response[bytes]:
            name = request.path_params["id"]
            return self._answer(lambda reader: _json(found) if (found := reader.one(name)) else _missing(name))

        @get(f"{_PATH}/{{id:str}}/image", sync_to_thread=True, opt=needs("read"))
        def show_picture(request: HttpRequest) -> Response[bytes]:
            return self._answer(lambda reader: _picture(reader, request.path_params["id"]))

        return [show_page, show_one, show_picture]

    @property
    def operations(self) -> Sequence[Operation]:
        """The same, described."""
        from app.recording.inference import RecordedInference

        page = msgspec.defstruct("InferencePage", [("inferences", list[RecordedInference]), ("next", str | None)])
        one, both = f"{_PATH}/{{id:str}}", (400, 404)
        summary = "Recorded inferences, the newest first"
        return (
            _operation(path=_PATH, summary=summary, query=_PARAMETERS, answer=page, failures=both),
            _operation(path=one, summary="One recorded inference", answer=RecordedInference, failures=both),
            _operation(
                path=f"{one}/image",
                summary="The picture of one recorded inference",
                answer=bytes,
                media_types=_MEDIA_TYPES,
                failures=both,
            ),
        )

    def close(self) -> None:
        """Let go of the store."""
        with self._opening:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def _answer(self, made: "Callable[[Reader], Response[bytes]]") -> Response[bytes]:
        if self._open is None:
            return _error(404, self._reason)
        try:
            with self._opening:
                if self._reader is None:
                    self._reader = self._open()
                reader = self._reader
            return made(reader)
        except InferenceError as error:
            return _error(http_status(error.kind), str(error))


def _page(reader: "Reader", given: list[tuple[str, Any]]) -> Response[bytes]:
    known = (*_TEXTS, *_SCORES, *_PAGING, "where")
    values: dict[str, str] = {}
    where: list[str] = []
    for written, value in given:
        name = written.replace("_", "-")
        if name not in known:
            raise invalid(f"Expected one of {', '.join(sorted(known))}", brief(written))
        if name == "where":
            where.append(str(value))
        elif name in values:
            raise invalid("Expected it once; only where may be repeated", name)
        else:
            values[name] = str(value)
    fields: dict[str, Any] = {name.replace("-", "_"): values.get(name) for name in _TEXTS}
    fields |= {name.replace("-", "_"): _score(values.get(name), name) for name in _SCORES}
    query = read_query(QueryText(where=where, **fields))
    after = values.get("after")
    page = reader.page(query, _limit(values.get("limit")), None if after is None else read_cursor(after))
    return _json({"inferences": page.inferences, "next": None if page.next is None else str(page.next)})


def _limit(text: str | None) -> int:
    if text is None:
        return _USUAL
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= _MOST):
        raise invalid(f"Expected a whole number from 1 to {_MOST}, got {brief(text)}", "limit")
    return int(text)


def _score(text: str | None, name: str) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise invalid(f"Expected a score within 0..1, got {brief(text)}", name) from None


def _picture(reader: "Reader", name: str) -> Response[bytes]:
    found = reader.one(name)
    if found is None:
        return _missing(name)
    data = reader.picture(found)
    if data is None:
        return _error(404, f"The picture of {brief(name)} is not kept")
    media_type = _media_type(data)
    headers = dict(_PICTURE_HEADERS)
    if media_type is None:
        headers["Content-Disposition"] = "attachment"
    return Response(data, media_type=media_type or "application/octet-stream", headers=headers)


def _media_type(data: bytes) -> str | None:
    """By the first bytes; None for what browsers do not show."""
    for start, media_type in _STARTS.items():
        if data.startswith(start):
            return media_type
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return "image/avif" if data[4:12] in (b"ftypavif", b"ftypavis") else None


_STARTS = {
    b"\xff\xd8\xff": "image/jpeg",
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
}


_MEDIA_TYPES = (*_STARTS.values(), "image/webp", "image/avif", "application/octet-stream")


def _operation(**said: Any) -> Operation:
    return Operation(method="GET", permission="read", **said)


def _missing(name: str) -> Response[bytes]:
    return _error(404, f"There is no inference {brief(name)}")


def _json(content: "dict[str, Any] | RecordedInference") -> Response[bytes]:
    return Response(msgspec.json.encode(content), media_type="application/json", headers=_DATA_HEADERS)


def _error(status: int, message: str) -> Response[bytes]:
    body = msgspec.json.encode({"error": message})
    return Response(body, status_code=status, media_type="application/json", headers=_DATA_HEADERS)
