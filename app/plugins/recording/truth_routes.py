"""Serve the truths of recorded inferences over HTTP."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from litestar import Response, delete, get, put
from litestar.handlers import HTTPRouteHandler

from app.core.engine.scheduling.background import Background
from app.core.protocols.http_inference import decompress_body
from app.core.protocols.protocol import Endpoint, HttpRequest, json_response
from app.core.server.auth.http_access import requires
from app.core.wire.json_body import read_json
from app.plugins.recording.api import TruthJudge
from app.plugins.recording.inference import Truth
from app.plugins.recording.truth_store import RightAnswer, TruthStore
from tasks.inference.limits import too_large

T = TypeVar("T")

_MAX_BYTES = 1_000_000
"""Maximum size of one truth."""
_MAX_WAITING = 16
_PATH = "/inferences/{id:str}/truth"
_FAILURES = (400, 404, 413, 429, 503)


class Truths:
    """Provide the routes of truths, and run all work on the store in one thread.

    Args:
        store: the store of the recordings.
        find_judges: returns what compares right records with answers.
    """

    def __init__(self, store: TruthStore, find_judges: Callable[[], Sequence[TruthJudge]] = tuple) -> None:
        self._store, self._find_judges = store, find_judges
        self._lane = Background("requests for truths", _MAX_WAITING)

    @property
    def handlers(self) -> list[HTTPRouteHandler]:
        """Return the handlers of ``/inferences/<id>/truth``."""

        @get(_PATH, opt=requires("read"))
        async def show(request: HttpRequest) -> Response[bytes]:
            name = request.path_params["id"]
            return _answer(await self.run(lambda store: store.get(name)))

        @put(_PATH, status_code=200, opt=requires("label"))
        async def store_one(request: HttpRequest) -> Response[bytes]:
            name, encoding = request.path_params["id"], request.headers.get("content-encoding", "")
            body = await decompress_body(await request.body(), encoding, _MAX_BYTES)
            if len(body) > _MAX_BYTES:
                raise too_large(_MAX_BYTES, "bytes in a body", len(body), "body")
            judges = self._find_judges()
            return _answer(await self.run(lambda store: store.put(name, read_json(body, RightAnswer), judges)))

        @delete(_PATH, status_code=200, opt=requires("label"))
        async def withdraw(request: HttpRequest) -> Response[bytes]:
            name = request.path_params["id"]
            await self.run(lambda store: store.withdraw(name))
            return _answer({})

        return [show, store_one, withdraw]

    @property
    def operations(self) -> Sequence[Endpoint]:
        """Return the OpenAPI operations of the handlers."""
        endpoint = partial(Endpoint, _PATH, failures=_FAILURES)
        change = partial(endpoint, permission="label")
        return (
            endpoint("The truth of one inference", answer=Truth, permission="read"),
            change("Store the truth of one inference", method="PUT", body=RightAnswer, answer=Truth),
            change("Withdraw the truth of one inference", method="DELETE"),
        )

    async def run(self, work: Callable[[TruthStore], T]) -> T:
        """Return the result of `work` with the store. Raise OVERLOADED if too much work waits; also as `work`."""
        return await self._lane.run(lambda: work(self._store))

    def close(self, seconds: float) -> None:
        """Finish the current work, for at most some seconds, and close the store."""
        self._lane.close(seconds, self._store.close)


def _answer(content: object) -> Response[bytes]:
    return json_response(msgspec.json.encode(content))
