"""Asking a server about one image over gRPC: the Open Inference Protocol, and GRPS."""

import time
from collections.abc import Mapping
from typing import Any

import grpc
import msgspec
from google.protobuf.message import DecodeError

from app.evaluation.asking import WAITS_S, read_elements
from app.evaluation.collecting import AskingError
from app.evaluation.dataset import Item
from app.evaluation.journal import Records
from app.protocols.pb import message_class

__all__ = ("GRPC_PROTOCOLS", "GrpcAsker")

GRPC_PROTOCOLS = ("v2-grpc", "grps-grpc")

_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_OK = 200


class GrpcAsker:
    """Asks over one channel, from any thread. A server that is busy is asked again, a few times.

    Args:
        address: host and port.
        protocol: one of `GRPC_PROTOCOLS`.
        model: its name there; empty for the only model (GRPS).
        parameters: of every request; the question of an item is added.
        timeout: seconds to wait for an answer.
        headers: sent with every call, as gRPC's metadata.
        credentials: for TLS; None for no TLS.
    """

    def __init__(
        self,
        address: str,
        protocol: str,
        model: str,
        parameters: Mapping[str, object],
        timeout: float,
        headers: Mapping[str, str],
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self._channel: Any = (
            grpc.insecure_channel(address, options=_UNLIMITED)
            if credentials is None
            else grpc.secure_channel(address, credentials, options=_UNLIMITED)
        )
        self._ask = self._v2 if protocol == "v2-grpc" else self._grps
        self._model = model
        self._parameters = parameters
        self._timeout = timeout
        self._metadata = [(name.lower(), value) for name, value in headers.items()]

    def __call__(self, item: Item, data: bytes) -> Records:
        """The records for one image.

        Raises:
            AskingError: saying what came instead.
        """
        parameters = {**self._parameters, **({"prompts": [item.question]} if item.question else {})}
        try:
            return msgspec.convert(self._ask(data, parameters), list[dict[str, object]])
        except grpc.RpcError as error:
            told: Any = error
            raise AskingError(f"{told.code().name}: {told.details()}") from None
        except (msgspec.MsgspecError, DecodeError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise AskingError(f"The answer has no records: {error}") from None

    def close(self) -> None:
        """Ask no more."""
        self._channel.close()

    def _v2(self, data: bytes, parameters: Mapping[str, object]) -> Any:
        request = message_class("inference.ModelInferRequest")(model_name=self._model)
        image = request.inputs.add(name="image", datatype="BYTES", shape=[1])
        image.contents.bytes_contents.append(data)
        for name, value in parameters.items():
            _set(image.parameters[name], value)
        answer = self._call("/inference.GRPCInferenceService/ModelInfer", request, "inference.ModelInferResponse")
        if answer.raw_output_contents:
            # Each element of BYTES stands behind its length in four bytes.
            return read_elements([answer.raw_output_contents[0][4:]])
        return read_elements([*answer.outputs[0].contents.bytes_contents])

    def _grps(self, data: bytes, parameters: Mapping[str, object]) -> Any:
        request = message_class("grps.protos.v1.GrpsMessage")(model=self._model)
        request.gmap.s_b["image"] = data
        request.gmap.s_s["image.parameters"] = msgspec.json.encode(parameters).decode()
        answer = self._call("/grps.protos.v1.GrpsService/Predict", request, "grps.protos.v1.GrpsMessage")
        if answer.status.code != _OK:
            raise AskingError(f"{answer.status.code}: {answer.status.msg}")
        return msgspec.json.decode(answer.gmap.s_s["image"])

    def _call(self, method: str, request: Any, answer: str) -> Any:
        call, body = self._channel.unary_unary(method), request.SerializeToString()
        for wait in WAITS_S:
            try:
                return message_class(answer).FromString(call(body, timeout=self._timeout, metadata=self._metadata))
            except grpc.RpcError as error:
                told: Any = error
                if told.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
            time.sleep(wait)
        return message_class(answer).FromString(call(body, timeout=self._timeout, metadata=self._metadata))


def _set(parameter: Any, value: object) -> None:
    """A parameter of the Open Inference Protocol, which has no lists: those go as a text of JSON."""
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, int):
        parameter.int64_param = value
    elif isinstance(value, float):
        parameter.double_param = value
    else:
        parameter.string_param = value if isinstance(value, str) else msgspec.json.encode(value).decode()
