"""What a client of images knows of a protocol: where a model is, a request, the records of an answer, and retries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pybase64

Records = Sequence[Mapping[str, object]]
Parameters = Mapping[str, object]

Client = Callable[[bytes, Parameters], Records]
"""Returns the records for an image and parameters, or raises InferenceClientError. Several threads call it."""

_DELAYS_S = (0.2, 0.4, 0.8, 1.6)
_PERSISTENT_DELAYS_S = (*_DELAYS_S, 3.0, *([5.0] * 58))


class ClientProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol.

    Attributes:
        name: the name in commands.
        path: returns the inference path for a model's name, percent-encoded, or empty for the only model; over gRPC,
            the path of the method.
        request: returns the JSON body, or the message without a model's name, for an image and parameters.
        records: extracts the records from the decoded answer, or from the bytes of a message.
        needs_model: whether a request names the model.
        rpc: whether the protocol uses gRPC.
    """

    name: str
    path: Callable[[str], str]
    request: Callable[[bytes, Parameters], Any]
    records: Callable[[Any], Any]
    needs_model: bool = True
    rpc: bool = False


@dataclass(frozen=True, slots=True)
class Retries:
    """How a client repeats requests that a server was too busy to answer.

    A persistent client waits five minutes in all, in which a server can restart, also if the server cannot be reached.
    It calls `on_wait` with the reason then.
    """

    persistent: bool = False
    on_wait: Callable[[str], object] = lambda _: None

    @property
    def delays(self) -> Sequence[float | None]:
        """Return the delay in seconds after each attempt; None after the last."""
        return (*(_PERSISTENT_DELAYS_S if self.persistent else _DELAYS_S), None)


class InferenceClientError(Exception):
    """One image was not answered, with the reason, and the HTTP status that says why: 500 if none does."""

    def __init__(self, reason: str, status: int = 500) -> None:
        super().__init__(reason)
        self.status = status


class ServerUnavailableError(InferenceClientError):
    """No image would be answered now: the server is unreachable or busy, rejects the client, or lacks the model."""


def certificate_advice(reason: str) -> str:
    """Return what to do about a failed TLS handshake; "" if its reason is no certificate, and a retry may help."""
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return "; --ca names a file with the authority that signed the certificate of the server"
    return "; --cert names a client certificate" if "ALERT" in reason and "CERTIFICATE" in reason.upper() else ""


def read_elements(data: Any) -> Any:
    """Return the records of the only image: the output is a list of records, a list in a list, or one JSON text."""
    if len(data) == 1 and not isinstance(data[0], Mapping):
        return msgspec.json.decode(data[0]) if isinstance(data[0], str | bytes) else data[0]
    return data


def encode_base64(data: bytes) -> str:
    """Return base64 as text."""
    return pybase64.b64encode(data).decode()
