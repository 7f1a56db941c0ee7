"""When a certificate ends, read from its bytes (X.509, RFC 5280, in DER)."""

import ssl
from datetime import UTC, datetime
from typing import NamedTuple

__all__ = ("not_after",)

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_VERSION = 0xA0
_UTC_TIME = 0x17


class _Part(NamedTuple):
    tag: int
    start: int
    end: int


def not_after(pem: str) -> float:
    """Seconds since the epoch at which the first certificate of `pem` is no longer valid.

    Raises:
        ValueError: when there is none.
    """
    begin, end = pem.find(_BEGIN), pem.find(_END)
    if begin < 0 or end < begin:
        raise ValueError("no certificate")
    der = ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_END)])
    try:
        certificate = _part(der, 0)
        fields = _part(der, certificate.start)
        first = _part(der, fields.start)
        # A version, which the oldest leave out; a serial number, an algorithm and an issuer; then the two dates.
        at = first.end if first.tag == _VERSION else fields.start
        for _ in range(3):
            at = _part(der, at).end
        validity = _part(der, at)
        end_date = _part(der, _part(der, validity.start).end)
    except IndexError:
        raise ValueError("a certificate that is cut short") from None
    return _seconds(end_date.tag, der[end_date.start : end_date.end].decode("ascii"))


def _part(der: bytes, at: int) -> _Part:
    """The value that begins at a byte: its tag, and where its content lies."""
    length = der[at + 1]
    start = at + 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(der[start : start + size], "big")
        start += size
    return _Part(der[at], start, start + length)


def _seconds(tag: int, written: str) -> float:
    """Of a time in UTC, with two digits of the year or four; two of them mean a year from 1950 to 2049."""
    if tag == _UTC_TIME:
        written = ("19" if written[:2] >= "50" else "20") + written
    return datetime.strptime(written, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
