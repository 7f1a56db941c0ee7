"""Check the files that an ONNX graph refers to, before ONNX Runtime opens them.

A tensor in an ONNX file may refer to a file, an offset and a length instead of containing its data (``external_data``
of `TensorProto`, https://github.com/onnx/onnx/blob/main/docs/ExternalData.md). A path out of the model's folder would
make the server read any file that it can access. The checks of ONNX Runtime differ between versions; these do not.
Compiled graphs (``EPContext`` nodes), which may refer to files, too, are rejected.

This module parses the protobuf wire format in place, without the package onnx. It reads only the parts of a large file
that lead to paths.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from app.core.runtimes.folder import is_hidden
from app.core.settings.model import ModelError

_MAX_DEPTH = 96
_BLOCK = 64 * 1024
_MAX_LOCATION = 4096

# The fields that lead to tensors, by message and number: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
_NESTED: Mapping[str, Mapping[int, str]] = {
    "Model": {7: "Graph", 20: "Training", 25: "Function"},
    "Training": {1: "Graph", 2: "Graph"},
    "Function": {7: "Node", 11: "Attribute"},
    "Graph": {1: "Node", 5: "Tensor", 15: "Sparse"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "Sparse", 23: "Sparse"},
    "Sparse": {1: "Tensor", 2: "Tensor"},
    "Tensor": {13: "Entry"},
}
_NODE_KIND = 4
_KEY, _VALUE = 1, 2

_Entries = list[tuple[bytes, bytes]]
"""The keys and values with the location, offset and length of a tensor's data."""


def check_external_data(file: Path, resolve_confined: Callable[[Path], Path]) -> Mapping[str, Path]:
    """Reject a graph that refers to files outside its folder, or to ranges that do not exist.

    The file is regular and not empty. `resolve_confined` resolves the links of a path, and raises a ModelError if the
    path leads out of the model's folder. Raise ModelError for an invalid reference, a compiled graph, and for a file
    that is not an ONNX file.

    Returns:
        The files with tensor data, by their names in the graph.
    """
    try:
        # Not memory-mapped: a mapped file that is truncated would end the process with SIGBUS.
        with file.open("rb", buffering=_BLOCK) as opened:
            size = os.fstat(opened.fileno()).st_size
            references = list(_references(opened, "Model", 0, size, 0))
    except _MalformedError:
        raise ModelError(f"{file} cannot be loaded: it is not an ONNX file, or it is cut short") from None
    data_files: dict[str, Path] = {}
    for reference in references:
        # Parsers differ in which of two repeated locations they use, so check both.
        for location in {value for key, value in reference if key == b"location"}:
            data = _resolve(file, location, resolve_confined)
            _check_range(file, data, reference)
            data_files[location.decode()] = data
    return data_files


class _MalformedError(Exception):
    """The bytes are not a valid message."""


def _references(file: BinaryIO, kind: str, start: int, end: int, depth: int) -> Iterator[_Entries]:
    """Yield the external data entries of each tensor in a message. Raise ModelError for a compiled graph."""
    if depth > _MAX_DEPTH:
        raise _MalformedError
    entries: _Entries = []
    for number, first, last in _fields(file, start, end):
        field = _NESTED[kind].get(number)
        if field == "Entry":
            entries.append(_entry(file, first, last))
        elif field is not None:
            yield from _references(file, field, first, last, depth + 1)
        elif kind == "Node" and number == _NODE_KIND and _text(file, first, last) == b"EPContext":
            raise ModelError(f"{file.name} is a compiled graph (EPContext); serve the graph that it was compiled from")
    if entries:
        yield entries


def _entry(file: BinaryIO, start: int, end: int) -> tuple[bytes, bytes]:
    fields = {_KEY: b"", _VALUE: b""}
    for number, first, last in _fields(file, start, end):
        if number in fields:
            if last - first > _MAX_LOCATION:
                raise _MalformedError
            fields[number] = _text(file, first, last)
    return fields[_KEY], fields[_VALUE]


def _fields(file: BinaryIO, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number, start and end of each field that is a string, bytes or a message."""
    at = start
    while at < end:
        tag, at = _varint(file, at, end)
        match tag & 7:
            case 0:
                _, at = _varint(file, at, end)
            case 1:
                at += 8
            case 2:
                length, at = _varint(file, at, end)
                at += length
                if at > end:
                    raise _MalformedError
                yield tag >> 3, at - length, at
            case 5:
                at += 4
            case _:
                # ONNX files contain no groups.
                raise _MalformedError
    if at != end:
        raise _MalformedError


def _varint(file: BinaryIO, at: int, end: int) -> tuple[int, int]:
    """Return the integer at a position, and the position after it."""
    value = shift = 0
    file.seek(at)
    while at < end and shift < 70 and (byte := file.read(1)):
        at += 1
        value |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return value, at
        shift += 7
    raise _MalformedError


def _text(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(min(end - start, _MAX_LOCATION + 1))


def _resolve(file: Path, location: bytes, resolve_confined: Callable[[Path], Path]) -> Path:
    """Return the file that a graph refers to. It must be in the folder of the graph or below."""
    text = location.decode(errors="backslashreplace")
    relative, reference = PurePosixPath(text), f"{file} refers to external data in {text[:200]!r}"
    # "*/..." is ONNX Runtime's own mark for an address in memory.
    unsafe = (
        relative.is_absolute() or not relative.parts or any(is_hidden(part) or part == "*" for part in relative.parts)
    )
    if unsafe or not text.isprintable() or "\\" in text:
        raise ModelError(f"{reference}; expected a file in the same folder or below")
    path = file.parent / relative
    if not path.is_file():
        raise ModelError(f"{reference}, which does not exist")
    return resolve_confined(path)


def _check_range(file: Path, data: Path, entries: _Entries) -> None:
    numbers = {key: value for key, value in entries if key in (b"offset", b"length")}
    try:
        offset, length = (int(numbers.get(key, b"0")) for key in (b"offset", b"length"))
    except ValueError:
        raise ModelError(f"{file} has external data with an offset or a length that is not a number") from None
    size = data.stat().st_size
    if min(offset, length) < 0 or offset + length > size:
        raise ModelError(f"{file} needs {length:,} bytes at {offset:,} of {data.name}, which has {size:,}")
