"""Open a client of any engine."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from app.clients import chariot, kserve_v1, kserve_v2
from app.clients.credentials import TlsOptions
from app.clients.protocol import Client, ClientProtocol, Retries

PROTOCOLS: Mapping[str, ClientProtocol] = {
    protocol.name: protocol
    for protocol in (
        chariot.CHARIOT_V2_KSERVE,
        chariot.CHARIOT_V2,
        kserve_v2.PROTOCOL,
        kserve_v1.PROTOCOL,
        kserve_v2.GRPC_PROTOCOL,
    )
}
"""The protocols by their names in commands."""


@contextmanager
def open_client(
    url: str,
    protocol: ClientProtocol,
    model: str,
    *,
    headers: Mapping[str, str],
    timeout: float,
    tls: TlsOptions = TlsOptions(),  # noqa: B008  frozen
    retries: Retries = Retries(),  # noqa: B008  frozen
) -> Generator[Client]:
    """Yield a client of a model at `url`, which has no path of the protocol; over gRPC, a host and a port.

    Raise CredentialsError if a header or a TLS file cannot be used.
    """
    if not protocol.rpc:
        from app.clients.http_client import http_client, open_http

        with open_http(headers, timeout, tls) as http:
            yield http_client(http, url, protocol, model, retries)
    else:
        from app.clients.grpc_client import grpc_client, open_channel

        with open_channel(url, tls) as channel:
            yield grpc_client(channel, url, protocol, model, headers, timeout, retries)
