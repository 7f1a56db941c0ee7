"""Answer the inferences of the HTTP protocols of one port before the framework, which has all other routes."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import aclosing, suppress
from functools import partial
from inspect import iscoroutine
from typing import Any

from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.types import ASGIApp, Receive, Send

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.protocols.http_inference import decompress_body
from app.core.protocols.inference_call import HandledCall, HttpResponse, RequestHead, StartedCall, Stream
from app.core.protocols.request_info import CLIENT, address_of, new_context
from app.core.server.auth.http_access import HttpAccess
from app.core.server.http.exchange import BODY_ARRIVED, Bodies, Body, BodyError, DisconnectedError, Reply, compressed
from app.core.server.http.request_rules import cors_headers
from app.core.server.http.route_table import Route, RouteTable
from app.core.server.load_shedding import OVERLOADED, ReadPauses, RejectionCounts
from tasks.inference.error import ErrorKind, InferenceError

_MAX_DROPPED_BYTES, _MAX_DROP_SECONDS = 1024 * 1024, 2.0
"""How much of a rejected body is dropped before its connection is closed. Beyond that, closing is cheaper."""

# Proxies and caches must forward each part at once.
_UNBUFFERED = (("cache-control", "no-cache"), ("x-accel-buffering", "no"))
_FAILED = "Something went wrong in the server; see its log"
_logger = logging.getLogger(__name__)


class Application(Litestar):
    """A Litestar application with another one before its routes, which passes on what it does not answer."""

    before_routes: ASGIApp

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request, or the lifespan of the application."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
        else:
            await self.before_routes(scope, receive, send)

    async def answer_other(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request that is no inference."""
        await super().__call__(scope, receive, send)


class InferenceApp:
    """Answer inferences; `other` answers all other requests.

    Args:
        engine: answers the inferences.
        routes: the inferences of the port.
        other: the application for requests that are no inferences.
        access: admits or rejects clients.
        bodies: limits of bodies.
        cors: which pages of other origins may read responses; None for no page.
        write_timeout: seconds that a client may leave a part of a stream unread.
    """

    def __init__(
        self,
        engine: Engine,
        routes: RouteTable,
        other: ASGIApp,
        access: HttpAccess,
        bodies: Bodies,
        cors: CORSConfig | None = None,
        write_timeout: float | None = None,
    ) -> None:
        self._engine = engine
        self._routes = routes
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
        found = self._routes.find(scope) if scope["method"] == "POST" else None
        body = Body(self._bodies, receive, BODY_ARRIVED in scope["state"])
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
        engine, endpoint = self._engine, route.endpoint
        headers: dict[str, str] = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        context = new_context(headers, route.protocol.name, address_of(scope))
        cors = cors_headers(self._cors, headers["origin"]) if self._cors is not None and "origin" in headers else ()
        reply = Reply(context, scope, send, cors)
        head = RequestHead(
            target=parameters.get("target", ""),
            version=parameters.get("version"),
            label=parameters.get("label"),
            headers=headers,
            query=scope["query_string"].decode(errors="replace"),
        )
        context.model_name, unknown = head.target, None
        if endpoint.queue_model is not None:
            try:
                context.model_name = endpoint.queue_model(head)
            except InferenceError as error:
                unknown = error
            if not engine.admission.has_idle_worker():
                overload = self._overload(route, context, is_known=unknown is None)
                if overload is not None:
                    await self._shed(route.error_response(overload), headers, body, reply)
                    return
        call: StartedCall | None = None
        try:
            self._access.admit(scope, endpoint.permission)
            context.client = CLIENT.get()
            if unknown is not None:
                raise engine.report_rejected(context, unknown)
            call = await self._start(route, head, body, context)
            context.disconnected = body.wait_for_disconnect
            if isinstance(call, Stream):
                await self._stream(call, reply)
                return
            encode = call.encode
            if "accept-encoding" in headers:
                # A worker also compresses the response.
                encode = partial(compressed, encode, headers["accept-encoding"])
            handle = partial(call.handle, engine) if isinstance(call, HandledCall) else engine.handle
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
        await reply.start(answer)
        await reply.end(answer.content)

    async def _start(self, route: Route, head: RequestHead, body: Body, context: RequestContext) -> StartedCall:
        """Read the body, and create the call.

        Raise BodyError for a body that does not arrive within its limits. Raise InferenceError for other rejections,
        which observers know.
        """
        engine, length = self._engine, _length_of(head.headers)
        try:
            if body.has_arrived or route.endpoint.queue_model is None:
                content = await body.read(length)
            else:
                with engine.admission.arriving():
                    content = await body.read(length)
            if "content-encoding" in head.headers:
                encoding = head.headers["content-encoding"]
                content = await decompress_body(content, encoding, engine.limits.max_request_bytes)
            call: Any = route.start(head, content, context)
            return await call if iscoroutine(call) else call
        except InferenceError as error:
            raise engine.report_rejected(context, error) from None

    async def _stream(self, stream: Stream, reply: Reply) -> None:
        """Send the parts of a response. An error before the first one is raised, a later one is the last part."""
        async with aclosing(stream.outputs) as outputs:
            part = await anext(outputs)
            media_type = stream.media_type
            if media_type.startswith("text/"):
                media_type += "; charset=utf-8"
            head = HttpResponse(content=b"", media_type=media_type, headers=_UNBUFFERED)
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
                await reply.part(part)

    def _overload(self, route: Route, context: RequestContext, *, is_known: bool) -> InferenceError | None:
        """Return the error of a request that is rejected by its headers, and count it; None if it is not rejected."""
        engine = self._engine
        # Clients that must authenticate did not yet, so they must not learn which model is busy.
        secured = self._access.requires_credentials
        error = engine.overload(None if secured or not is_known else context.model_name)
        if error is None:
            return None
        if secured:
            error = InferenceError(error.kind, OVERLOADED, retry_after=error.retry_after)
        known_name = context.model_name if is_known and engine.registry.owner(context.model_name) else ""
        self._rejections.add(context.request_id, route.protocol.name, known_name, error.message)
        return error

    async def _shed(self, answer: HttpResponse, headers: Mapping[str, str], body: Body, reply: Reply) -> None:
        """Reject a request at once, and read nothing more of its connection for a while."""
        length = _length_of(headers)
        if length is None or length > _MAX_DROPPED_BYTES or "expect" in headers:
            await self._send_and_close(answer, headers, body, reply)
            return
        await reply.start(answer)
        await reply.part(answer.content)
        if not reply.closes:
            # The client has its response. The server reads the connection again only after the response has ended.
            await asyncio.sleep(self._pauses.next())
        await reply.end()

    async def _send_and_close(self, answer: HttpResponse, headers: Mapping[str, str], body: Body, reply: Reply) -> None:
        """Send a response without waiting for the body, drop some of that, and close the connection."""
        await reply.start(answer, close=True)
        await reply.part(answer.content)
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
