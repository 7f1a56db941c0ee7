"""Compress responses with gzip: those of inferences in a worker, and those of the framework's routes."""

import gzip
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from litestar.config.compression import CompressionConfig
from litestar.datastructures import Headers
from litestar.middleware.compression import CompressionMiddleware
from litestar.types import Scope, Send

from app.core.protocols.inference_call import HttpResponse

_MIN_BYTES = 1000
_LEVEL = 1
_REFUSED = re.compile(r"gzip\s*;\s*q=0(?:\.0*)?\s*(?:,|$)")
"""Part of Accept-Encoding in which a client refuses gzip (RFC 9110, 12.4.2)."""


def with_gzip(encode: Callable[..., HttpResponse], encodings: str) -> Callable[..., HttpResponse]:
    """Return `encode`, whose answers are compressed if Accept-Encoding, `encodings`, allows it."""
    is_accepted = "gzip" in encodings and _REFUSED.search(encodings) is None
    return partial(_compressed, encode) if is_accepted else encode


def _compressed(encode: Callable[..., HttpResponse], *arguments: Any) -> HttpResponse:
    answer = encode(*arguments)
    if len(answer.content) < _MIN_BYTES:
        return answer
    headers = (*answer.headers, ("content-encoding", "gzip"), ("vary", "Accept-Encoding"))
    return msgspec.structs.replace(answer, content=gzip.compress(answer.content, _LEVEL), headers=headers)


class _Compression(CompressionMiddleware):
    """Compress responses, unless the client refuses gzip with a weight of zero, which Litestar does not read."""

    def create_compression_send_wrapper(self, send: Send, compression_encoding: str, scope: Scope) -> Send:
        is_rejected = _REFUSED.search(Headers.from_scope(scope).get("accept-encoding", ""))
        return send if is_rejected else super().create_compression_send_wrapper(send, compression_encoding, scope)


COMPRESSION = CompressionConfig(
    backend="gzip",
    minimum_size=_MIN_BYTES,
    gzip_compress_level=_LEVEL,
    middleware_class=_Compression,
)
"""The same rules for the routes of the framework."""
