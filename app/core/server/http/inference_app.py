"""Answer the inferences of the HTTP protocols of one port, as one ASGI application before the framework."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from inspect import iscoroutine
from typing import Any

from litestar.config.cors import CORSConfig
from litestar.types import ASGIApp, Receive, Send

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.protocols.http_inference import decompress_body
from app.core.protocols.inference_call import HandledCall, HttpResponse, RequestHead, StartedCall, Stream
from app.core.protocols.protocol import HttpProtocol, report_rejections
from app.core.protocols.request_info import CLIENT, address_of, new_context
from app.core.server.auth.http_access import HttpAccess
from app.core.server.http.bodies import Bodies, Body, BodyError, DisconnectedError
from app.core.server.http.compression import with_gzip
from app.core.server.http.cors import cors_headers
from app.core.server.http.reply import Reply, with_charset
from app.core.server.http.route_table import Route, RouteTable
from app.core.server.load_shedding import OVERLOADED, ReadPauses, RejectionCounts
from tasks.inference.error import ErrorKind, InferenceError

_MAX_DROPPED_BYTES, _MAX_DROP_SECONDS = 1024 * 1024, 2.0
"""How much of a refused body is dropped before its connection is closed. Beyond that, closing is cheaper."""

# Proxies and caches must forward each part at once.
_UNBUFFERED = (("cache-control", "no-cache"), ("x-accel-buffering", "no"))
_FAILED = "Something went wrong in the server; see its log"
_logger = logging.getLogger(__name__)


class InferenceApp:
    """Answer inferences; `other` answers all other requests.

    Args:
        engine: answers the inferences.
        protocols: the protocols of the port.
        other: the application for requests that are no inferences.
        access: admits or rejects clients.
        bodies: limits of bodies.
        cors: which pages of other origins may read answers; None for no page.
        write_timeout: seconds that a client may leave a part of a stream unread.

    Attributes:
        routes: the inferences of the port.
    """

    def __init__(
        self,
        engine: Engine,
        protocols: Sequence[HttpProtocol],
        other: ASGIApp,
        access: HttpAccess,
        bodies: Bodies,
        cors: CORSConfig | None = None,
        write_timeout: float | None = None,
    ) -> None:
        self.routes = RouteTable(engine, protocols)
        self._engine = engine
        self._other = other
        self._access = access
        self._bodies = bodies
        self._cors = cors
        self._write_timeout = write_timeout
        self._pauses = ReadPauses()
        self._rejections = RejectionCounts(engine)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        scope.setdefault("state", {})
        found = self.routes.find(scope) if scope["method"] == "POST" else None
        body = Body(self._bodies, receive)
        try:
            if found is None:
                await self._other(scope, body.receive, send)
            else:
                await self._answer(*found, scope, body, send)
        except DisconnectedError:
            return
        finally:
            body.close()

    async def _answer(self, route: Route, parameters: Mapping[str, str], scope: Any, body: Body, send: Send) -> None:
        headers: dict[str, str] = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        context = new_context(headers, route.protocol.name, address_of(scope))
        reply = Reply(context, scope, send, cors_headers(self._cors, headers))
        head = RequestHead(
            target=parameters.get("target", ""),
            version=parameters.get("version"),
            label=parameters.get("label"),
            headers=headers,
            query=scope["query_string"].decode(errors="replace"),
        )
        if route.endpoint.queue_model is not None and not self._engine.has_idle_worker():
            overload = self._overload(route, head, context)
            if overload is not None:
                await self._shed(route.error_response(overload), headers, body, reply)
                return
        call: StartedCall | None = None
        try:
            self._access.admit(scope, route.endpoint.permission)
            context.client = CLIENT.get()
            call = await self._start(route, head, body, context)
            context.disconnected = body.wait_for_disconnect
            if isinstance(call, Stream):
                await self._stream(call, reply)
                return
            # A worker also compresses the answer.
            encode = with_gzip(call.encode, headers.get("accept-encoding", ""))
            handle = partial(call.handle, self._engine) if isinstance(call, HandledCall) else self._engine.handle
            answer = await handle(context, call.model_name, call.decode, encode)
        except BodyError as error:
            content = route.protocol.routing_error(error.status_code, error.detail)
            answer = HttpResponse(
                content=content, status=error.status_code, headers=tuple((error.headers or {}).items())
            )
            await self._send_and_close(answer, headers, body, reply)
            return
        except InferenceError as error:
            answer = route.error_response(error if call is None else call.map_error_path(error))
        except (asyncio.CancelledError, DisconnectedError):
            raise
        except BaseException:  # `SystemExit` from a codec must not stop the server
            _logger.exception("request failed", extra={"request_id": context.request_id})
            answer = route.error_response(InferenceError(ErrorKind.INTERNAL, _FAILED))
        await reply.send(answer)

    async def _start(self, route: Route, head: RequestHead, body: Body, context: RequestContext) -> StartedCall:
        """Read the body, and create the call.

        Raise BodyError for a body that does not arrive within its limits. Raise InferenceError for other refusals,
        which observers know.
        """
        engine, endpoint, model_name = self._engine, route.endpoint, head.target
        length = _length_of(head.headers)
        if endpoint.queue_model is not None:
            with report_rejections(engine, context, head.target):
                model_name = endpoint.queue_model(head)
        with report_rejections(engine, context, model_name):
            if endpoint.queue_model is None:
                content = await body.read(length)
            else:
                with engine.arriving(length != 0):
                    content = await body.read(length)
            if "content-encoding" in head.headers:
                encoding = head.headers["content-encoding"]
                content = await decompress_body(content, encoding, engine.limits.max_request_bytes)
            call: Any = route.start(head, content, context)
            return await call if iscoroutine(call) else call

    async def _stream(self, stream: Stream, reply: Reply) -> None:
        """Send the parts of an answer. An error before the first one is raised, a later one is the last part."""
        async with aclosing(stream.outputs) as outputs:
            part = await anext(outputs)
            head = HttpResponse(content=b"", media_type=with_charset(stream.media_type), headers=_UNBUFFERED)
            await reply.start(head, streamed=True)
            # A client that does not read must not keep a worker.
            with suppress(TimeoutError):
                await self._send_part(reply, part)
                try:
                    async for part in outputs:
                        await self._send_part(reply, part)
                    end = stream.encode_end()
                except InferenceError as error:
                    end = stream.encode_error(stream.map_error_path(error))
                await self._send_part(reply, end)
                await reply.end()

    async def _send_part(self, reply: Reply, part: bytes) -> None:
        if part:
            async with asyncio.timeout(self._write_timeout):
                await reply.body(part)

    def _overload(self, route: Route, head: RequestHead, context: RequestContext) -> InferenceError | None:
        """Return the error of a request that is rejected by its headers, and count it; None if it is not rejected."""
        engine, model_name = self._engine, None
        with suppress(InferenceError):
            model_name = route.endpoint.queue_model(head) if route.endpoint.queue_model is not None else None
        # Clients that must authenticate did not yet, so they must not learn which model is busy.
        secured = self._access.requires_credentials
        error = engine.overload(None if secured else model_name)
        if error is None:
            return None
        if secured:
            error = InferenceError(error.kind, OVERLOADED, retry_after=error.retry_after)
        known_name = engine.registry.known_name(model_name or "")
        self._rejections.add(context.request_id, route.protocol.name, known_name, error.message)
        return error

    async def _shed(self, answer: HttpResponse, headers: Mapping[str, str], body: Body, reply: Reply) -> None:
        """Reject a request at once, and read nothing more of its connection for a while."""
        length = _length_of(headers)
        if length is None or length > _MAX_DROPPED_BYTES or "expect" in headers:
            await self._send_and_close(answer, headers, body, reply)
            return
        await reply.start(answer)
        await reply.body(answer.content)
        if not reply.closes:
            # The client has its answer. The server reads the connection again only after the response has ended.
            await asyncio.sleep(self._pauses.next())
        await reply.end()

    async def _send_and_close(self, answer: HttpResponse, headers: Mapping[str, str], body: Body, reply: Reply) -> None:
        """Send an answer without waiting for the body, drop some of that, and close the connection."""
        await reply.start(answer, close=True)
        await reply.body(answer.content)
        # A client that waits for 100 Continue sends no body.
        if "expect" not in headers:
            await body.drop(_MAX_DROPPED_BYTES, _MAX_DROP_SECONDS)
        await reply.end()


def _length_of(headers: Mapping[str, str]) -> int | None:
    """Return the length of a body, None if it is not known before its end."""
    if "transfer-encoding" in headers:
        return None
    length = headers.get("content-length", "0")
    return int(length) if length.isdecimal() else None
