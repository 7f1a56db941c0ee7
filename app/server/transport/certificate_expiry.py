"""Read the end of a certificate's validity from its DER encoding (X.509, RFC 5280)."""

import ssl
from datetime import UTC, datetime
from typing import NamedTuple

__all__ = ("not_after",)

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_VERSION = 0xA0
_UTC_TIME = 0x17


class _DerValue(NamedTuple):
    tag: int
    start: int
    end: int


def not_after(pem: str) -> float:
    """Return the end of validity of the first certificate in `pem`, in seconds since the epoch.

    Raises:
        ValueError: if there is none, or it is truncated.
    """
    begin, end = pem.find(_BEGIN), pem.find(_END)
    if begin < 0 or end < begin:
        raise ValueError("no certificate")
    der = ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_END)])
    try:
        certificate = _read_der_value(der, 0)
        fields = _read_der_value(der, certificate.start)
        first_field = _read_der_value(der, fields.start)
        # The fields are an optional version, serial number, algorithm and issuer, followed by the validity.
        position = first_field.end if first_field.tag == _VERSION else fields.start
        for _ in range(3):
            position = _read_der_value(der, position).end
        validity = _read_der_value(der, position)
        end_date = _read_der_value(der, _read_der_value(der, validity.start).end)
    except IndexError:
        raise ValueError("a certificate that is cut short") from None
    return _seconds(end_date.tag, der[end_date.start : end_date.end].decode("ascii"))


def _read_der_value(der: bytes, position: int) -> _DerValue:
    """Return the tag and the content range of the value that begins at byte `position`."""
    length = der[position + 1]
    start = position + 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(der[start : start + size], "big")
        start += size
    return _DerValue(der[position], start, start + length)


def _seconds(tag: int, text: str) -> float:
    """Convert a UTC time to seconds since the epoch; years of two digits mean 1950 to 2049."""
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
