"""What the Open Inference Protocol serves over gRPC: `inference.GRPCInferenceService` as Triton has it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import aclosing
from typing import Any, cast

import grpc

from app import __version__
from app.engine.engine import Engine
from app.engine.events import Caller
from app.engine.registry import Registration
from app.engine.servable import Servable
from app.protocols.grpc_protocol import Call, Handler, call_ended, caller_of_call, metadata_of, unary
from app.protocols.kserve_v2.plain_messages import (
    NamedModel,
    RepositoryEntry,
    RepositoryModel,
    RepositoryWish,
    read_message,
    written_message,
)
from app.protocols.kserve_v2.protobuf import (
    InferMessage,
    decode,
    encode,
    encode_failed,
    encode_pieces,
    encode_streamed,
)
from app.protocols.kserve_v2.rendering import Wanted
from app.protocols.kserve_v2.repository import check_loaded_as_it_lies, counted, statistics_of
from app.protocols.kserve_v2.routes import EXTENSIONS, model_metadata
from app.protocols.pb import INFERENCE
from app.protocols.permission import Permission
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse

__all__ = ("KServeV2Grpc",)

_STATUS_WISH = "triton_grpc_error"
"""A stream with this key in its metadata ends at the first error, with its status, instead of telling it in band."""


class KServeV2Grpc:
    """KServe's V2, the Open Inference Protocol, with the extensions of Triton."""

    name = "kserve-v2-grpc"
    service = INFERENCE
    permissions: Mapping[str, Permission] = {
        "ServerLive": "open",
        "ServerReady": "open",
        "ModelStatistics": "read",
        "RepositoryIndex": "read",
        "RepositoryModelLoad": "admin",
        "RepositoryModelUnload": "admin",
    }

    def subject(self, data: bytes, /) -> str:
        try:
            # Loading and unloading have the name in the same field.
            return read_message("RepositoryModelUnloadRequest", data, RepositoryModel).model_name
        except InferenceError:
            return ""

    def handlers(self, engine: Engine, stopping: asyncio.Event, /) -> Mapping[str, Handler]:
        calls = _Calls(engine)
        methods = {
            "ServerLive": calls.server_live,
            "ServerReady": calls.server_ready,
            "ServerMetadata": calls.server_metadata,
            "ModelReady": calls.model_ready,
            "ModelMetadata": calls.model_metadata,
            "ModelStatistics": calls.model_statistics,
            "RepositoryIndex": calls.repository_index,
            "RepositoryModelLoad": calls.repository_load,
            "RepositoryModelUnload": calls.repository_unload,
            "ModelInfer": calls.infer,
        }

        async def stream(requests: AsyncIterable[bytes], context: Call) -> AsyncGenerator[bytes]:
            caller = caller_of_call(context, self.name)
            in_band = metadata_of(context).get(_STATUS_WISH) != "true"
            try:
                with engine.counted(caller):
                    async with aclosing(_until(stopping, requests)) as read:
                        async for data in read:
                            async with aclosing(calls.streamed(data, caller, in_band)) as items:
                                async for item in items:
                                    yield item
            except Exception as error:  # noqa: BLE001  grpc would tell the sender whatever it is
                failure = error
            else:
                return
            await call_ended(context, caller, failure)

        streamed = cast("Handler", grpc.stream_stream_rpc_method_handler(cast("Any", stream)))
        return {**{name: unary(self.name, answer) for name, answer in methods.items()}, "ModelStreamInfer": streamed}


class _Calls:
    """The methods over an engine, each from a serialized message to another."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def server_live(self, data: bytes, caller: Caller) -> bytes:
        del data, caller
        return written_message("ServerLiveResponse", {"live": True})

    async def server_ready(self, data: bytes, caller: Caller) -> bytes:
        del data, caller
        return written_message("ServerReadyResponse", {"ready": not self._engine.unready})

    async def server_metadata(self, data: bytes, caller: Caller) -> bytes:
        del data, caller
        about = {"name": "charioteer", "version": __version__, "extensions": EXTENSIONS}
        return written_message("ServerMetadataResponse", about)

    async def model_ready(self, data: bytes, caller: Caller) -> bytes:
        del caller
        try:
            wanted = read_message("ModelReadyRequest", data, NamedModel)
            self._engine.ready(wanted.name, wanted.version or None)
        except InferenceError as error:
            if error.kind is not ErrorKind.MODEL_NOT_READY:
                raise
            return written_message("ModelReadyResponse", {"ready": False})
        return written_message("ModelReadyResponse", {"ready": True})

    async def model_metadata(self, data: bytes, caller: Caller) -> bytes:
        del caller
        registration = self._addressed(read_message("ModelMetadataRequest", data, NamedModel))
        return written_message("ModelMetadataResponse", model_metadata(self._engine, registration))

    async def model_statistics(self, data: bytes, caller: Caller) -> bytes:
        del caller
        wanted = read_message("ModelStatisticsRequest", data, NamedModel)
        found = [statistics_of(self._engine, each) for each in counted(self._engine, wanted.name, wanted.version)]
        return written_message("ModelStatisticsResponse", {"model_stats": found})

    async def repository_index(self, data: bytes, caller: Caller) -> bytes:
        del caller
        wanted = read_message("RepositoryIndexRequest", data, RepositoryWish)
        _check_repository(wanted.repository_name)
        found = [
            RepositoryEntry(each.source.name, each.source.version, each.state, each.reason)
            for each in await self._engine.repository.index()
            if each.servable is not None or not wanted.ready
        ]
        return written_message("RepositoryIndexResponse", {"models": found})

    async def repository_load(self, data: bytes, caller: Caller) -> bytes:
        del caller
        wanted = read_message("RepositoryModelLoadRequest", data, RepositoryModel)
        _check_repository(wanted.repository_name)
        check_loaded_as_it_lies(wanted.parameters)
        await self._engine.repository.load(wanted.model_name)
        return written_message("RepositoryModelLoadResponse", {})

    async def repository_unload(self, data: bytes, caller: Caller) -> bytes:
        del caller
        wanted = read_message("RepositoryModelUnloadRequest", data, RepositoryModel)
        _check_repository(wanted.repository_name)
        await self._engine.repository.unload(wanted.model_name)
        return written_message("RepositoryModelUnloadResponse", {})

    async def infer(self, data: bytes, caller: Caller) -> bytes:
        request = self._parsed(data, caller)
        return await self._answered(request, self._asked(request, caller), caller, streamed=False)

    async def streamed(self, data: bytes, caller: Caller, in_band: bool) -> AsyncGenerator[bytes]:
        """The items that answer one request of a stream.

        Args:
            data: the request.
            caller: who sent it.
            in_band: whether an error is an item too.

        Raises:
            InferenceError: what went wrong, unless it is told in band.
        """
        request_id = ""
        try:
            request = self._parsed(data, caller)
            request_id = request.id
            servable = self._asked(request, caller)
            if not servable.streams or request.wants_whole_answers:
                yield await self._answered(request, servable, caller, streamed=True)
                return
            pieces = self._engine.stream(caller, request.model_name, lambda: decode(request, servable)[0])
            async with aclosing(encode_pieces(pieces)) as items:
                async for item in items:
                    yield item
        except InferenceError as error:
            if not in_band:
                raise
            yield encode_failed(error, request_id)

    async def _answered(self, request: InferMessage, servable: Servable, caller: Caller, *, streamed: bool) -> bytes:
        wanted = Wanted()

        def decoded() -> InferenceRequest:
            nonlocal wanted
            neutral, wanted = decode(request, servable)
            return neutral

        def encoded(response: InferenceResponse) -> bytes:
            return (encode_streamed if streamed else encode)(response, servable, wanted)

        return await self._engine.exchange(caller, request.model_name, decoded, encoded)

    def _parsed(self, data: bytes, caller: Caller) -> InferMessage:
        # In the event loop: parsing holds the interpreter's lock wherever it is done, and whatever happens to a request
        # is told with the name of its model.
        try:
            return InferMessage(data, self._engine.limits)
        except InferenceError as error:
            raise self._engine.refused(caller, error) from None

    def _asked(self, request: InferMessage, caller: Caller) -> Servable:
        try:
            return self._engine.registry.find(request.model_name, request.model_version).ready_servable()
        except InferenceError as error:
            raise self._engine.refused(caller, error, request.model_name) from None

    def _addressed(self, model: NamedModel) -> Registration:
        return self._engine.registry.find(model.name, model.version or None)


def _check_repository(name: str) -> None:
    if name:
        raise InferenceError(ErrorKind.UNSUPPORTED, f"There is one repository, which has no name; got {name!r}")


async def _until(stopping: asyncio.Event, requests: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """The requests of a stream.

    Raises:
        InferenceError: MODEL_NOT_READY once the server stops, which an idle stream would otherwise hold up.
    """
    iterator = aiter(requests)
    stop = asyncio.ensure_future(stopping.wait())
    read: asyncio.Future[bytes] | None = None
    try:
        while True:
            read = asyncio.ensure_future(anext(iterator))
            await asyncio.wait({read, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not read.done():
                raise InferenceError(ErrorKind.MODEL_NOT_READY, "The server is stopping")
            try:
                data = read.result()
            except StopAsyncIteration:
                return
            yield data
    finally:
        stop.cancel()
        if read is not None:
            read.cancel()
