"""Serve the truths of recorded inferences over HTTP."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from litestar import Response, delete, get, post, put
from litestar.handlers import HTTPRouteHandler

from app.core.engine.scheduling.thread_pool import lower_priority
from app.core.protocols.http_inference import decompress_body
from app.core.protocols.protocol import Endpoint, HttpRequest, QueryParameter, json_response
from app.core.protocols.request_info import CLIENT
from app.core.server.auth.http_access import requires
from app.core.wire.json_body import read_json
from app.plugins.evaluation.dataset import EvaluationError
from app.plugins.feedback.truths.importing import read_task
from app.plugins.feedback.truths.matching import MAX_BYTES, Label, LabelLine, read_line
from app.plugins.feedback.truths.right_answer import RightAnswer
from app.plugins.feedback.truths.truth_store import Outcome, TruthStore
from app.plugins.recording.inference import Truth
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.limits import too_large

T = TypeVar("T")

_logger = logging.getLogger(__name__)

_MAX_LINES_BYTES = 16_000_000
_MAX_LINES = 1000
_MAX_WAITING = 16
_ONE, _MANY = "/inferences/{id:str}/truth", "/inferences/truths"
_FAILURES = (400, 404, 413, 429, 503)


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """The number of truths that were stored, and one outcome for each line that is not blank."""

    matched: int
    results: Sequence[Outcome]


class Truths:
    """Provide the routes of truths, and run all work on the store in one thread."""

    def __init__(self, store: TruthStore) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="truths", initializer=lower_priority)
        self._waiting = 0

    @property
    def handlers(self) -> list[HTTPRouteHandler]:
        """Return the handlers of ``/inferences/<id>/truth`` and ``/inferences/truths``."""

        @get(_ONE, opt=requires("read"))
        async def show(request: HttpRequest) -> Response[bytes]:
            name = request.path_params["id"]
            return _answer(await self.run(lambda store: store.get(name)))

        @put(_ONE, status_code=200, opt=requires("label"))
        async def store_one(request: HttpRequest) -> Response[bytes]:
            name, author, body = request.path_params["id"], CLIENT.get(), await _body(request, MAX_BYTES)
            return _answer(await self.run(lambda store: store.put(name, read_json(body, RightAnswer), author)))

        @delete(_ONE, status_code=200, opt=requires("label"))
        async def withdraw(request: HttpRequest) -> Response[bytes]:
            name = request.path_params["id"]
            await self.run(lambda store: store.withdraw(name))
            return _answer({})

        @post(_MANY, status_code=200, opt=requires("label"))
        async def store_many(request: HttpRequest) -> Response[bytes]:
            author, body = CLIENT.get(), await _body(request, _MAX_LINES_BYTES)
            for name in request.query_params:
                if name != "spread":
                    raise invalid("Expected spread, the only parameter", quote_value(name))
            if (spread := request.query_params.get("spread", "false")) not in ("true", "false"):
                raise invalid(f"Expected true or false, got {quote_value(spread)}", "spread")
            return _answer(await self.run(lambda store: add_lines(store, body, author, spread=spread == "true")))

        return [show, store_one, withdraw, store_many]

    @property
    def operations(self) -> Sequence[Endpoint]:
        """Return the OpenAPI operations of the handlers."""
        spread = QueryParameter(
            name="spread",
            summary="Whether a truth of an image belongs to all its inferences",
            schema={"type": "boolean", "default": False},
        )
        common: Any = {"failures": _FAILURES, "permission": "label"}
        return (
            Endpoint(_ONE, "The truth of one inference", answer=Truth, failures=_FAILURES, permission="read"),
            Endpoint(_ONE, "Store the truth of one inference", method="PUT", body=RightAnswer, answer=Truth, **common),
            Endpoint(_ONE, "Withdraw the truth of one inference", method="DELETE", **common),
            Endpoint(
                _MANY,
                "Store truths, one a line, as JSON lines",
                method="POST",
                query=[spread],
                body=LabelLine,
                media_types=["application/x-ndjson"],
                answer=Outcomes,
                **common,
            ),
        )

    async def run(self, work: Callable[[TruthStore], T]) -> T:
        """Return the result of `work` with the store. Raise OVERLOADED if too much work waits; also as `work`."""
        if self._waiting >= _MAX_WAITING:
            raise InferenceError(ErrorKind.OVERLOADED, f"{self._waiting} requests for truths wait; try again later")
        self._waiting += 1
        try:
            return await asyncio.wrap_future(self._thread.submit(work, self._store))
        finally:
            self._waiting -= 1

    async def store_task(self, task: Mapping[str, object], author: str, complete: bool) -> Outcome | None:
        """Store the annotation of a task of Label Studio for all inferences of its image; None without one.

        Raise InferenceError as `run`.

        Args:
            task: the task, with labels of the model.
            author: the client that sends it.
            complete: whether people could mark all objects that the model finds.
        """

        def store(truths: TruthStore) -> Outcome | None:
            try:
                return next(iter(truths.add(read_task(task, complete=complete), author, spread=True)), None)
            except EvaluationError as error:
                return Outcome(result="invalid", error=str(error))

        outcome = await self.run(store)
        if outcome is not None and outcome.result != "matched":
            # Label Studio does not show answers to its events.
            _logger.warning("an annotation of Label Studio is no truth: %s %s", outcome.result, outcome.error)
        return outcome

    def close(self, seconds: float) -> None:
        """Finish the current work, for at most some seconds, and close the store."""
        self._thread.submit(self._store.close)
        self._thread.shutdown(wait=seconds > 0)


def add_lines(store: TruthStore, body: bytes, author: str, *, spread: bool = False) -> Outcomes:
    """Store the truths in JSON lines. A line that cannot be used does not affect the others.

    Raise INVALID_REQUEST for no lines or too many, or if the store cannot be used.
    """
    lines = [line for line in body.split(b"\n") if line.strip()]
    if not lines:
        raise invalid('Expected JSON lines such as {"id": "...", "verdict": "right"}, got none', "body")
    if len(lines) > _MAX_LINES:
        raise too_large(_MAX_LINES, "lines", len(lines), "body")
    labels: dict[int, Label] = {}
    outcomes: dict[int, Outcome] = {}
    for number, line in enumerate(lines):
        try:
            labels[number] = read_line(line)
        except InferenceError as error:
            outcomes[number] = Outcome(result="invalid", error=str(error))
    outcomes |= dict(zip(labels, store.add(list(labels.values()), author, spread=spread), strict=True))
    results = [outcomes[number] for number in range(len(lines))]
    return Outcomes(matched=sum(outcome.result == "matched" for outcome in results), results=results)


async def _body(request: HttpRequest, max_bytes: int) -> bytes:
    body = await decompress_body(await request.body(), request.headers.get("content-encoding", ""), max_bytes)
    if len(body) > max_bytes:
        raise too_large(max_bytes, "bytes in a body", len(body), "body")
    return body


def _answer(content: object) -> Response[bytes]:
    return json_response(msgspec.json.encode(content))
