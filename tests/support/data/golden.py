"""The golden cases in fixtures/wire: requests of every protocol, and the expected responses.

A case is a folder ``fixtures/wire/<protocol>/<case>`` with

- ``request.json`` or ``request.bin``, the body; both together are V2's JSON followed by the bytes of the tensors,
  with the header that gives the length of the JSON;
- ``response.json``; ``response.jsonl`` for several lines or concatenated messages; or ``response.bin`` alone for a
  response that is not JSON. ``response.bin`` with ``response.json`` is the data after the JSON;
- ``case.toml``: ``method``, ``path``, ``status``, ``models`` (of ``tests.support.servers.apps``), and optionally
  ``content_type``, ``headers`` and ``response_headers``.

Or it is a line of ``fixtures/wire/<protocol>/cases.toml``: a name with the request, if any, and the response, as text.
An item that begins with ``0x`` has bytes of its side in hexadecimal: alone, or those after the JSON. The group of the
line has the settings. ``<image>`` stands for `IMAGE`. The method is POST unless it is given.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.support.data.images import encode_base64, encode_image, rectangle

WIRE = Path(__file__).parents[3] / "fixtures" / "wire"
IMAGE = encode_base64(encode_image(rectangle()))
HEADER_LENGTH = "inference-header-content-length"
_FIELDS = {"method", "path", "status", "models", "content_type", "headers", "response_headers"}


class GoldenCase(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A case: its settings as in ``case.toml``, and its other files by name."""

    protocol: str
    name: str
    settings: Mapping[str, Any]
    files: Mapping[str, bytes]

    def body(self) -> tuple[bytes, dict[str, str]]:
        parts = [self.files[name] for name in sorted(self.files, reverse=True) if name.startswith("request.")]
        headers: dict[str, str] = dict(self.settings.get("headers", {}))
        if len(parts) > 1:
            headers[HEADER_LENGTH] = str(len(parts[0]))
        if "content_type" in self.settings:
            headers["content-type"] = self.settings["content_type"]
        return b"".join(parts), headers


def _read_cases() -> Iterator[GoldenCase]:
    for path in sorted(WIRE.glob("*/*/case.toml")):
        files = {file.name: file.read_bytes() for file in path.parent.iterdir() if file != path}
        yield _case(path.parents[1].name, path.parent.name, tomllib.loads(path.read_text()), files)
    for path in sorted(WIRE.glob("*/cases.toml")):
        for group in tomllib.loads(path.read_text())["group"]:
            settings = {"method": "POST", **{name: value for name, value in group.items() if name in _FIELDS}}
            for name in group.keys() - _FIELDS:
                yield _case(path.parent.name, name, settings, _read_line(group[name]))


def _read_line(items: Sequence[str]) -> dict[str, bytes]:
    """Return the files of a line: the last text is the response, which bytes may follow."""
    files: dict[str, bytes] = {}
    end = max(index for index, item in enumerate(items) if not item.startswith("0x"))
    for index, item in enumerate(items):
        side = "request" if index < end else "response"
        if item.startswith("0x"):
            files[f"{side}.bin"] = bytes.fromhex(item[2:])
        else:
            is_json = side == "request" or item.startswith("{")
            files[f"{side}.{'json' if is_json else 'bin'}"] = item.replace("<image>", IMAGE).encode()
    return files


def _case(protocol: str, name: str, settings: Mapping[str, Any], files: Mapping[str, bytes]) -> GoldenCase:
    assert set(settings) <= _FIELDS, f"{protocol}/{name} has an unknown name"
    return GoldenCase(protocol=protocol, name=name, settings=settings, files=files)


CASES = sorted(_read_cases(), key=lambda case: (case.protocol, case.name))
assert len({(case.protocol, case.name) for case in CASES}) == len(CASES), "Two cases have one name"
