"""Authorize gRPC calls."""

from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

import grpc

from app.core.protocols.grpc_protocol import PUSHBACK, Call, GrpcProtocol, Handler, address_of_call, metadata_of
from app.core.protocols.protocol import Permission
from app.core.protocols.request_info import CLIENT, REQUEST_ID_HEADER
from app.core.protocols.status import grpc_status
from app.core.server.auth.access_control import AccessControl
from app.core.server.auth.audit import audit
from app.core.server.auth.credentials import AccessError
from app.core.server.grpc.own_services import HEALTH, REFLECTION, REFLECTION_METHOD

Metadata = Sequence[tuple[str, str | bytes]]


def required_permissions(protocols: Sequence[GrpcProtocol]) -> Mapping[str, Permission]:
    """Return the required permission of every method, by its full name."""
    permissions: dict[str, Permission] = {
        f"/{HEALTH}/Check": "open",
        f"/{HEALTH}/Watch": "open",
        f"/{REFLECTION}/{REFLECTION_METHOD}": "read",
    }
    for protocol in protocols:
        for name in {*protocol.service.methods_by_name, *protocol.permissions}:
            permissions[f"/{protocol.service.full_name}/{name}"] = _required_permission(protocol, name)
    return permissions


def with_audit(protocol: GrpcProtocol, methods: Mapping[str, Handler]) -> Mapping[str, Handler]:
    """Return `methods`; the unary ones for ``admin`` write to the audit log."""
    handlers = dict(methods)
    for name, method in methods.items():
        if _required_permission(protocol, name) == "admin" and method.unary_unary is not None:
            handlers[name] = _audited_handler(protocol, name, method)
    return handlers


def _required_permission(protocol: GrpcProtocol, method: str) -> Permission:
    return protocol.permissions.get(method, "admin")


class GrpcAccess(grpc.aio.ServerInterceptor):
    """Admit or reject calls, before any of their messages is read."""

    def __init__(self, access: AccessControl, protocols: Sequence[GrpcProtocol]) -> None:
        self._access = access
        self._required = required_permissions(protocols)
        self._protocols = {protocol.service.full_name: protocol for protocol in protocols}

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method
        permission = self._required.get(method, "admin")
        handler = await continuation(handler_call_details)
        if handler is None or permission == "open":
            return handler
        pairs: Metadata = handler_call_details.invocation_metadata or ()
        metadata = [(name, value) for name, value in pairs if isinstance(value, str)]
        try:
            identity = self._access.authorize(metadata, permission)
        except AccessError as error:
            return self._rejecting_handler(method, permission, error, metadata)
        CLIENT.set(identity.name)
        return (
            self._rate_limited_handler(handler, metadata, permission, method) if handler.request_streaming else handler
        )

    def _rate_limited_handler(
        self, handler: Any, metadata: Sequence[tuple[str, str]], permission: Permission, method: str
    ) -> Any:
        """Return `handler`, whose both sides stream, with authorization and rate limit for each further message."""
        inner = handler.stream_stream

        async def authorized_messages(requests: AsyncIterable[Any], call: Call) -> AsyncGenerator[Any]:
            is_first = True
            async for message in requests:
                if not is_first:
                    try:
                        self._access.authorize(metadata, permission)
                    except AccessError as error:
                        # Record it here: the handler may end the call itself.
                        address = address_of_call(call)
                        self._access.rejection_log.record(error, metadata, operation=method, address=address)
                        raise
                is_first = False
                yield message

        async def answer(requests: AsyncIterable[Any], call: Call) -> AsyncGenerator[Any]:
            try:
                async with (
                    aclosing(authorized_messages(requests, call)) as messages,
                    aclosing(inner(messages, call)) as responses,
                ):
                    async for message in responses:
                        yield message
            except AccessError as error:
                await _abort(call, error)

        limited_handler: Any = grpc.stream_stream_rpc_method_handler(
            cast("Any", answer), handler.request_deserializer, handler.response_serializer
        )
        return limited_handler

    def _rejecting_handler(
        self, method: str, permission: Permission, error: AccessError, metadata: Sequence[tuple[str, str]]
    ) -> Handler:
        """Return a handler that rejects any call with `error`; it reads a message only for the audit log."""

        async def reject(requests: AsyncIterable[bytes], call: Call) -> AsyncGenerator[bytes]:
            # The address of the client is not known earlier.
            self._access.rejection_log.record(error, metadata, operation=method, address=address_of_call(call))
            if permission == "admin" and (error.client or error.logged):
                await self._audit_rejection(method, requests, call, error)
            await _abort(call, error)
            yield b""

        return cast("Handler", grpc.stream_stream_rpc_method_handler(cast("Any", reject)))

    async def _audit_rejection(
        self, method: str, requests: AsyncIterable[bytes], call: Call, error: AccessError
    ) -> None:
        service, _, name = method.removeprefix("/").partition("/")
        protocol, model = self._protocols.get(service), ""
        if protocol is not None and error.client:
            async for data in requests:
                model = protocol.target_model(data)
                break
        audit(
            _action(name),
            model=model,
            outcome="refused",
            status=grpc_status(error.kind).name,
            client=error.client,
            address=address_of_call(call),
            request_id=metadata_of(call).get(REQUEST_ID_HEADER, ""),
        )


async def _abort(call: Call, error: AccessError) -> None:
    if error.retry_after is not None:
        call.set_trailing_metadata(((PUSHBACK, str(error.retry_after * 1000)),))
    await call.abort(grpc_status(error.kind), error.message)


def _audited_handler(protocol: GrpcProtocol, name: str, handler: Any) -> Handler:
    inner = handler.unary_unary

    async def answer(data: bytes, call: Any) -> bytes:
        succeeded = False
        try:
            response = await inner(data, call)
            succeeded = True
            return response
        finally:
            status = "OK"
            if not succeeded:
                code = call.code()
                status = code.name if isinstance(code, grpc.StatusCode) else "CANCELLED"
            returned: dict[str, str] = dict(call.trailing_metadata() or ())
            audit(
                _action(name),
                model=protocol.target_model(data),
                outcome="ok" if succeeded else "failed",
                status=status,
                client=CLIENT.get(),
                address=address_of_call(call),
                request_id=returned.get(REQUEST_ID_HEADER) or metadata_of(call).get(REQUEST_ID_HEADER, ""),
            )

    return cast("Handler", grpc.unary_unary_rpc_method_handler(cast("Any", answer)))


def _action(name: str) -> str:
    """Return the action of a method, such as ``load`` of RepositoryModelLoad."""
    return name.removeprefix("RepositoryModel").lower()
