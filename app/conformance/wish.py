"""What a person asks for, at a command line or in a test run, made into an engine that is held against a protocol."""

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
    """What was asked for makes no sense. The message says what was expected and what came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """An engine, a protocol, and how to ask.

    Args:
        url: where the engine is: http:// or https://, and grpc:// or grpcs:// for protocols over gRPC.
        protocol: the name of one of `PROTOCOLS`.
        model: the model's name in paths and messages.
        task_type: what the model does, as Chariot calls it; found from its answers where it is not given.
        images: files of pictures in which the model finds something.
        headers: lines for the engine's gate, "Name: value"; sent as metadata over gRPC.
        header_file: a file of such lines, for what nobody is to read in a list of processes; goes before `headers`.
        health_path: where a platform would ask for health.
        request: a file with the JSON body of an inference that the model can answer.
        timeout: seconds to wait for an answer.
        max_requests: no more requests than this.
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
    """The engine as it was asked for. Nothing is sent before a clause is looked at.

    Raises:
        WishError: the wish makes no sense, or one of its files cannot be read.
    """
    protocol = _protocol(wish)
    parts = _parts(wish.url)
    url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    target = Target(
        url=url,
        model=wish.model,
        task_type=_task_type(wish.task_type),
        pictures=[_picture(each) for each in wish.images],
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
    known = {each.name: each for each in PROTOCOLS}
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
    """What a URL says before its host, as a header (RFC 7617): reports show the URL, and none of it."""
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _task_type(name: str | None) -> str | None:
    if name is not None and name not in FIELDS:
        raise WishError(f"--task-type: Expected one of {', '.join(FIELDS)}, got {name}")
    return name


def _picture(path: Path) -> Picture:
    try:
        return picture_of(path.name, path.read_bytes())
    except (OSError, ValueError) as error:
        raise WishError(f"--image: {error}") from None


def _request(path: Path) -> Mapping[str, object]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except (OSError, msgspec.DecodeError) as error:
        raise WishError(f"--request: {error}") from None
