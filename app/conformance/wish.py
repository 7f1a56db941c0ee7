"""Turn the options of a command line or a test run into a check of an engine against a protocol."""

import base64
import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

import httpx
import msgspec

from app.conformance.calls import SCHEMES, connected
from app.conformance.chariot.looking import FIELDS
from app.conformance.gate import GateError, gate_headers
from app.conformance.holding import Holding
from app.conformance.pictures import Picture, picture_of
from app.conformance.probe import Probe, Target
from app.conformance.protocols import PROTOCOLS, Protocol
from app.conformance.trust import Trust, TrustError

__all__ = ("Wish", "WishError", "holding")

_HTTP_SCHEMES = ("http://", "https://")


class WishError(Exception):
    """An option is not valid. The message has the expected and the actual value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Options of one run: the engine, the protocol, and the client.

    Args:
        url: the engine's URL: http:// or https://, and grpc:// or grpcs:// for protocols over gRPC.
        protocol: the name of one of `PROTOCOLS`.
        model: the name of the model in paths and messages.
        task_type: Chariot's task type; detected from responses by default.
        images: image files in which the model finds something.
        headers: "Name: value" lines, such as credentials; sent as metadata over gRPC.
        header_file: a file of such lines, so that secrets do not show in the process list; it overrides `headers`.
        health_path: the path that a platform polls for health.
        request: a file with a JSON body that the model can answer.
        timeout: seconds to wait for a response.
        max_requests: the largest number of requests to send.
        trust: certificates for TLS.
    """

    url: str
    protocol: str = PROTOCOLS[0].name
    model: str | None = None
    task_type: str | None = None
    images: Sequence[Path] = ()
    headers: Sequence[str] = ()
    header_file: Path | None = None
    health_path: str | None = None
    request: Path | None = None
    timeout: float = 30
    max_requests: int = 400
    trust: Trust = field(default_factory=Trust)


@contextmanager
def holding(wish: Wish) -> Generator[Holding]:
    """Open the clients for `wish` and yield its runner. No request is sent before the first check.

    Raises:
        WishError: an option is not valid, or a file cannot be read.
    """
    protocol = _protocol(wish)
    parts = _parts(wish.url)
    url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    target = Target(
        url=url,
        model=wish.model,
        task_type=_task_type(wish.task_type),
        pictures=[_read_image(path) for path in wish.images],
        health_path=wish.health_path,
        request=_request(wish.request) if wish.request else None,
    )
    try:
        headers = {**_password(parts), **gate_headers(wish.headers, wish.header_file)}
    except GateError as error:
        raise WishError(str(error)) from None
    if not 0 < wish.timeout < math.inf:
        raise WishError(f"--timeout: Expected seconds above 0, got {wish.timeout:g}")
    if wish.max_requests < 1:
        raise WishError(f"--max-requests: Expected 1 or more, got {wish.max_requests}")
    with ExitStack() as stack:
        try:
            context = wish.trust.context()
            client = httpx.Client(timeout=wish.timeout, headers=headers, trust_env=False, verify=context)
            stack.enter_context(client)
            opened = connected(url, headers, wish.timeout, wish.trust) if protocol.rpc else None
            caller = stack.enter_context(opened) if opened else None
        except TrustError as error:
            raise WishError(str(error)) from None
        yield Holding(protocol, Probe(client, target, wish.max_requests, caller))


def _protocol(wish: Wish) -> Protocol:
    known = {choice.name: choice for choice in PROTOCOLS}
    if wish.protocol not in known:
        raise WishError(f"--protocol: Expected one of {', '.join(known)}, got {wish.protocol}")
    protocol = known[wish.protocol]
    schemes = SCHEMES if protocol.rpc else _HTTP_SCHEMES
    if not wish.url.startswith(schemes):
        raise WishError(f"Expected a URL that begins with {' or '.join(schemes)} for {protocol.name}, got {wish.url}")
    return protocol


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise WishError(f"Expected a URL, got {url}: {error}") from None
    if not host:
        raise WishError(f"Expected a URL with a host, got {url}")
    if parts.query or parts.fragment:
        raise WishError("Expected a URL without ? and #, because the protocol's paths are appended to it")
    return parts


def _password(parts: SplitResult) -> dict[str, str]:
    """Return the user and password of a URL as a header (RFC 7617), because reports show the URL without them."""
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _task_type(name: str | None) -> str | None:
    if name is not None and name not in FIELDS:
        raise WishError(f"--task-type: Expected one of {', '.join(FIELDS)}, got {name}")
    return name


def _read_image(path: Path) -> Picture:
    try:
        return picture_of(path.name, path.read_bytes())
    except (OSError, ValueError) as error:
        raise WishError(f"--image: {error}") from None


def _request(path: Path) -> Mapping[str, object]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except (OSError, msgspec.DecodeError) as error:
        raise WishError(f"--request: {error}") from None
