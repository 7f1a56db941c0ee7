"""Create a `CheckRunner` from the options of a command line or a test run."""

import base64
import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

import httpx
import msgspec

from app.conformance.chariot.image_probe import FIELDS
from app.conformance.client.auth_headers import HeaderError, read_headers
from app.conformance.client.calls import SCHEMES, open_channel
from app.conformance.client.probe import Probe, Target
from app.conformance.client.tls import TlsOptions, TlsOptionsError
from app.conformance.protocols import PROTOCOLS, Protocol, protocol_named
from app.conformance.runner import CheckRunner
from app.conformance.sample_images import SampleImage, load_image

__all__ = ("ConformanceOptions", "OptionsError", "open_runner")

_HTTP_SCHEMES = ("http://", "https://")


class OptionsError(Exception):
    """An option is not valid. The message has the expected and the actual value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceOptions:
    """Options of one run: the engine, the protocol, and the client.

    Args:
        url: the engine's URL: http:// or https://, and grpc:// or grpcs:// for protocols over gRPC; or host and port.
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
        tls: certificates for TLS.
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
    tls: TlsOptions = field(default_factory=TlsOptions)


@contextmanager
def open_runner(options: ConformanceOptions) -> Generator[CheckRunner]:
    """Open the clients for `options` and yield the runner. No request is sent before the first check.

    Raises:
        OptionsError: an option is not valid, or a file cannot be read.
    """
    protocol = _protocol(options)
    url_parts = _split_url(_with_scheme(options.url, protocol))
    url = url_parts._replace(netloc=url_parts.netloc.rpartition("@")[2]).geturl()
    target = Target(
        url=url,
        model=options.model,
        task_type=_task_type(options.task_type),
        images=[_read_image(path) for path in options.images],
        health_path=options.health_path,
        request=_request(options.request) if options.request else None,
    )
    try:
        headers = {**_basic_auth(url_parts), **read_headers(options.headers, options.header_file)}
    except HeaderError as error:
        raise OptionsError(str(error)) from None
    if not 0 < options.timeout < math.inf:
        raise OptionsError(f"--timeout: Expected seconds above 0, got {options.timeout:g}")
    if options.max_requests < 1:
        raise OptionsError(f"--max-requests: Expected 1 or more, got {options.max_requests}")
    with ExitStack() as stack:
        try:
            context = options.tls.context()
            client = httpx.Client(timeout=options.timeout, headers=headers, trust_env=False, verify=context)
            stack.enter_context(client)
            channel = open_channel(url, headers, options.timeout, options.tls) if protocol.rpc else None
            transport = stack.enter_context(channel) if channel else None
        except TlsOptionsError as error:
            raise OptionsError(str(error)) from None
        yield CheckRunner(protocol, Probe(client, target, options.max_requests, transport))


def _protocol(options: ConformanceOptions) -> Protocol:
    try:
        return protocol_named(options.protocol)
    except LookupError as error:
        raise OptionsError(f"--protocol: {error.args[0]}") from None


def _with_scheme(url: str, protocol: Protocol) -> str:
    """Return a URL of the protocol; an address without a scheme has no TLS."""
    schemes = SCHEMES if protocol.rpc else _HTTP_SCHEMES
    if "://" not in url:
        return f"{schemes[0]}{url}"
    if not url.startswith(schemes):
        raise OptionsError(f"Expected a URL that begins with {' or '.join(schemes)} for {protocol.name}, got {url}")
    return url


def _split_url(url: str) -> SplitResult:
    try:
        url_parts = urlsplit(url)
        host, _ = url_parts.hostname, url_parts.port
    except ValueError as error:
        raise OptionsError(f"Expected a URL, got {url}: {error}") from None
    if not host:
        raise OptionsError(f"Expected a URL with a host, got {url}")
    if url_parts.query or url_parts.fragment:
        raise OptionsError("Expected a URL without ? and #, because the protocol's paths are appended to it")
    return url_parts


def _basic_auth(url_parts: SplitResult) -> dict[str, str]:
    """Return the user and password of a URL as a header (RFC 7617), because reports show the URL without them."""
    if url_parts.username is None:
        return {}
    pair = f"{unquote(url_parts.username)}:{unquote(url_parts.password or '')}"
    return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _task_type(name: str | None) -> str | None:
    if name is not None and name not in FIELDS:
        raise OptionsError(f"--task-type: Expected one of {', '.join(FIELDS)}, got {name}")
    return name


def _read_image(path: Path) -> SampleImage:
    try:
        return load_image(path.name, path.read_bytes())
    except (OSError, ValueError) as error:
        raise OptionsError(f"--image: {error}") from None


def _request(path: Path) -> Mapping[str, object]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except (OSError, msgspec.DecodeError) as error:
        raise OptionsError(f"--request: {error}") from None
