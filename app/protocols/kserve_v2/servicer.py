"""The gRPC service of the Open Inference Protocol, `inference.GRPCInferenceService` with Triton's definitions."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import aclosing
from typing import Any, cast

import grpc

from app import __version__
from app.engine.engine import Engine
from app.engine.events import RequestInfo
from app.engine.registry import Registration
from app.engine.servable import Servable
from app.proto import INFERENCE
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
from app.protocols.kserve_v2.repository import (
    check_loaded_as_it_lies,
    statistics_of,
    versions_with_statistics,
)
from app.protocols.kserve_v2.routes import EXTENSIONS, model_metadata
from app.protocols.permission import Permission
from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import InferenceResponse

__all__ = ("KServeV2Grpc",)

_STATUS_KEY = "triton_grpc_error"
"""Metadata key: a stream ends at the first error with its status, instead of sending the error as an item."""


class KServeV2Grpc:
    """KServe's V2 protocol, the Open Inference Protocol, with Triton's extensions."""

    name = "kserve-v2-grpc"
    service = INFERENCE
    permissions: Mapping[str, Permission] = {
        "ServerLive": "open",
        "ServerReady": "open",
        "ServerMetadata": "infer",
        "ModelReady": "infer",
        "ModelMetadata": "infer",
        "ModelInfer": "infer",
        "ModelStreamInfer": "infer",
        "ModelStatistics": "read",
        "RepositoryIndex": "read",
        "RepositoryModelLoad": "admin",
        "RepositoryModelUnload": "admin",
    }
    queued_methods = frozenset({"ModelInfer"})

    def refusal_message(self, error: InferenceError, /) -> bytes | None:
        del error
        return None

    def subject(self, data: bytes, /) -> str:
        try:
            # Load and unload requests have the name in the same field.
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
            in_band = metadata_of(context).get(_STATUS_KEY) != "true"
            try:
                with engine.counted(caller):
                    async with aclosing(_until_stopping(stopping, requests)) as received:
                        async for data in received:
                            async with aclosing(calls.streamed(data, caller, in_band)) as items:
                                async for item in items:
                                    yield item
            except Exception as error:  # noqa: BLE001  grpc would send any exception to the client
                failure = error
            else:
                return
            await call_ended(context, caller, failure)

        streaming_handler = cast("Handler", grpc.stream_stream_rpc_method_handler(cast("Any", stream)))
        return {
            **{name: unary(self.name, answer) for name, answer in methods.items()},
            "ModelStreamInfer": streaming_handler,
        }


class _Calls:
    """The methods over an engine, from message bytes to message bytes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def server_live(self, data: bytes, caller: RequestInfo) -> bytes:
        del data, caller
        return written_message("ServerLiveResponse", {"live": True})

    async def server_ready(self, data: bytes, caller: RequestInfo) -> bytes:
        del data, caller
        return written_message("ServerReadyResponse", {"ready": not self._engine.unready})

    async def server_metadata(self, data: bytes, caller: RequestInfo) -> bytes:
        del data, caller
        about = {"name": "charioteer", "version": __version__, "extensions": EXTENSIONS}
        return written_message("ServerMetadataResponse", about)

    async def model_ready(self, data: bytes, caller: RequestInfo) -> bytes:
        del caller
        try:
            wanted = read_message("ModelReadyRequest", data, NamedModel)
            self._engine.ready(wanted.name, wanted.version or None)
        except InferenceError as error:
            if error.kind is not ErrorKind.MODEL_NOT_READY:
                raise
            return written_message("ModelReadyResponse", {"ready": False})
        return written_message("ModelReadyResponse", {"ready": True})

    async def model_metadata(self, data: bytes, caller: RequestInfo) -> bytes:
        del caller
        registration = self._addressed(read_message("ModelMetadataRequest", data, NamedModel))
        return written_message("ModelMetadataResponse", model_metadata(self._engine, registration))

    async def model_statistics(self, data: bytes, caller: RequestInfo) -> bytes:
        del caller
        wanted = read_message("ModelStatisticsRequest", data, NamedModel)
        found = [
            statistics_of(self._engine, registration)
            for registration in versions_with_statistics(self._engine, wanted.name, wanted.version)
        ]
        return written_message("ModelStatisticsResponse", {"model_stats": found})

    async def repository_index(self, data: bytes, caller: RequestInfo) -> bytes:
        del caller
        wanted = read_message("RepositoryIndexRequest", data, RepositoryWish)
        _check_repository(wanted.repository_name)
        found = [
            RepositoryEntry(entry.source.name, entry.source.version, entry.state, entry.reason)
            for entry in await self._engine.repository.index()
            if entry.servable is not None or not wanted.ready
        ]
        return written_message("RepositoryIndexResponse", {"models": found})

    async def repository_load(self, data: bytes, caller: RequestInfo) -> bytes:
        del caller
        wanted = read_message("RepositoryModelLoadRequest", data, RepositoryModel)
        _check_repository(wanted.repository_name)
        check_loaded_as_it_lies(wanted.parameters)
        await self._engine.repository.load(wanted.model_name)
        return written_message("RepositoryModelLoadResponse", {})

    async def repository_unload(self, data: bytes, caller: RequestInfo) -> bytes:
        del caller
        wanted = read_message("RepositoryModelUnloadRequest", data, RepositoryModel)
        _check_repository(wanted.repository_name)
        await self._engine.repository.unload(wanted.model_name)
        return written_message("RepositoryModelUnloadResponse", {})

    async def infer(self, data: bytes, caller: RequestInfo) -> bytes:
        request = self._parse(data, caller)
        return await self._infer_response(request, self._servable(request, caller), caller, streamed=False)

    async def streamed(self, data: bytes, caller: RequestInfo, in_band: bool) -> AsyncGenerator[bytes]:
        """Yield the response items for one request of a stream.

        Args:
            data: the serialized request.
            caller: information about the stream.
            in_band: whether to send an error as an item.

        Raises:
            InferenceError: any error, unless it is sent in band.
        """
        request_id = ""
        try:
            request = self._parse(data, caller)
            request_id = request.id
            servable = self._servable(request, caller)
            if not servable.streams or request.wants_whole_answers:
                yield await self._infer_response(request, servable, caller, streamed=True)
                return
            chunks = self._engine.stream(caller, request.model_name, lambda: decode(request, servable)[0])
            async with aclosing(encode_pieces(chunks, raw=request.is_raw)) as items:
                async for item in items:
                    yield item
        except InferenceError as error:
            if not in_band:
                raise
            yield encode_failed(error, request_id)

    async def _infer_response(
        self, request: InferMessage, servable: Servable, caller: RequestInfo, *, streamed: bool
    ) -> bytes:
        selection = Wanted()

        def decode_request() -> InferenceRequest:
            nonlocal selection
            neutral, selection = decode(request, servable)
            return neutral

        def encode_response(response: InferenceResponse) -> bytes:
            return (encode_streamed if streamed else encode)(response, servable, selection)

        return await self._engine.exchange(caller, request.model_name, decode_request, encode_response)

    def _parse(self, data: bytes, caller: RequestInfo) -> InferMessage:
        # Parse in the event loop: parsing holds the GIL in any thread, and later errors are reported with the model's
        # name.
        try:
            return InferMessage(data, self._engine.limits)
        except InferenceError as error:
            raise self._engine.refused(caller, error) from None

    def _servable(self, request: InferMessage, caller: RequestInfo) -> Servable:
        try:
            return self._engine.registry.find(request.model_name, request.model_version).ready_servable()
        except InferenceError as error:
            raise self._engine.refused(caller, error, request.model_name) from None

    def _addressed(self, model: NamedModel) -> Registration:
        return self._engine.registry.find(model.name, model.version or None)


def _check_repository(name: str) -> None:
    if name:
        raise InferenceError(
            ErrorKind.UNSUPPORTED, f"Expected no repository name, because there is only one; got {name!r}"
        )


async def _until_stopping(stopping: asyncio.Event, requests: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Yield the requests of a stream.

    Raises:
        InferenceError: MODEL_NOT_READY once the server stops; an idle stream would otherwise delay the stop.
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
