"""Mutators of encoded images: headers, chunks, segments and endings."""

import struct
import zlib
from collections.abc import Callable, Mapping
from random import Random

from tests.fuzz.images import FORMATS, encode_sample
from tests.fuzz.mutation.octets import mutate_octets

_SIZES = (0, 1, 2, 32, 255, 65535, 20_000, 100_000, 2**31 - 1, 2**31, 2**32 - 1)
_OTHER_FILES = (
    b"", b"\0", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.7\n", b"GIF89a", b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",
    b"\xff\xd8\xff\xd9", b"RIFF\xff\xff\xff\xffWEBPVP8L", b"II*\x00\xff\xff\xff\xff", b"MM\x00*\x00\x00\x00\x08",
    b"BM" + b"\xff" * 60,
    b"P6 99999999 99999999 255\n", b"P6\n# " + b"a" * 3000, b"\x00\x00\x00 ftypavif\x00\x00\x00\x00avifmif1",
    b"\x93NUMPY\x01\x00",
    b"\x00\x00\x00\x0cjP  \r\n\x87\n", b"v/1\x01\x02\x00\x00\x00", b"#?RADIANCE\n\n-Y 99999 +X 99999\n",
    b"\x80\x04\x95.", b"PK\x03\x04",
)  # fmt: skip


def mutate_image(random: Random) -> bytes:
    """Return an image of any format after one to three mutations."""
    data = encode_sample(random.choice(FORMATS))
    for _ in range(random.choice((1, 1, 2, 3))):
        data = random.choice(list(IMAGES.values()))(data, random)
    return data


def invalid_image(random: Random) -> bytes:
    """Return bytes that start like an image or another file."""
    return random.choice(_OTHER_FILES) + random.randbytes(random.choice((0, 0, 8, 300)))


def png_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return kind and content of each readable chunk of a PNG."""
    chunks: list[tuple[bytes, bytes]] = []
    offset = 8
    while offset + 12 <= len(data):
        (size,) = struct.unpack_from(">I", data, offset)
        chunks.append((data[offset + 4 : offset + 8], data[offset + 8 : offset + 8 + size]))
        offset += 12 + size
    return chunks


def jpeg_segments(data: bytes) -> list[tuple[int, int, int]]:
    """Return marker, start and end of each JPEG segment with a length, up to the scan."""
    segments: list[tuple[int, int, int]] = []
    offset = 2
    while offset + 4 <= len(data) and data[offset] == 0xFF:
        (size,) = struct.unpack_from(">H", data, offset + 2)
        segments.append((data[offset + 1], offset, offset + 2 + size))
        if data[offset + 1] == 0xDA:
            break
        offset += 2 + size
    return segments


def _png(chunks: list[tuple[bytes, bytes]]) -> bytes:
    written = [
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


def _change_png(data: bytes, random: Random) -> bytes:
    """Change a chunk, and correct the checksum."""
    chunks = png_chunks(data) if data.startswith(b"\x89PNG") else []
    if not chunks:
        return mutate_octets(data, random)
    index = random.randrange(len(chunks))
    kind, content = chunks[index]
    match random.randrange(6):
        case 0:
            del chunks[index]
        case 1:
            chunks[index:index] = [chunks[index]] * random.choice((1, 5, 200))
        case 2:
            chunks[index] = (kind, mutate_octets(content, random))
        case 3:
            chunks[index] = (
                random.choice((b"IDAT", b"IHDR", b"PLTE", b"tRNS", b"acTL", b"fcTL", b"zTXt", b"abcd")),
                content,
            )
        case 4:
            random.shuffle(chunks)
        case _:
            chunks.insert(index, (b"iCCP", b"p\0\0" + zlib.compress(bytes(random.choice((10, 9_000_000))))))
    return _png(chunks)


def _change_jpeg(data: bytes, random: Random) -> bytes:
    """Remove, repeat, move or change a segment."""
    segments = jpeg_segments(data) if data.startswith(b"\xff\xd8") else []
    if not segments:
        return mutate_octets(data, random)
    _, start, end = random.choice(segments)
    match random.randrange(5):
        case 0:
            return data[:start] + data[end:]
        case 1:
            return data[:end] + data[start:end] * random.choice((1, 30)) + data[end:]
        case 2:
            return data[: start + 2] + struct.pack(">H", random.choice((0, 1, 2, 65535))) + data[start + 4 :]
        case 3:
            return data[: start + 4] + mutate_octets(data[start + 4 : end], random) + data[end:]
        case _:
            return data[:2] + data[end:] + data[start:end]


def _change_size(data: bytes, random: Random) -> bytes:
    """Change width or height in the header."""
    size = random.choice(_SIZES)
    if data.startswith(b"\x89PNG"):
        chunks = png_chunks(data)
        if chunks and len(chunks[0][1]) == 13:
            width, height = random.choice(((size, 24), (32, size), (size, size)))
            chunks[0] = (b"IHDR", struct.pack(">II", width, height) + chunks[0][1][8:])
        return _png(chunks)
    if data.startswith(b"\xff\xd8"):
        for marker, start, _ in jpeg_segments(data):
            if 0xC0 <= marker <= 0xC2:
                return data[: start + 5] + struct.pack(">HH", size % 65536, size % 65536) + data[start + 9 :]
    if data.startswith(b"GIF8"):
        return data[:6] + struct.pack("<HH", size % 65536, size % 65536) + data[10:]
    if data.startswith(b"BM"):
        return data[:18] + struct.pack("<II", size, random.choice((24, size))) + data[26:]
    if data.startswith(b"P6"):
        return b"P6 %d %d 255\n" % (size, random.choice((24, size))) + data[13:]
    return _change_directory(data, random)


def _change_directory(data: bytes, random: Random) -> bytes:
    """Change tag, type, count or offset in a directory of TIFF or Exif."""
    start = max(data.find(b"II*\0"), data.find(b"MM\0*"))
    if start < 0 or start + 10 > len(data):
        return mutate_octets(data, random)
    order = "<" if data[start : start + 1] == b"I" else ">"
    (directory,) = struct.unpack_from(f"{order}I", data, start + 4)
    changed = bytearray(data)
    entry = start + directory + 2 + 12 * random.randrange(12)
    if entry + 12 > len(data) or random.random() < 0.1:
        struct.pack_into(f"{order}I", changed, start + 4, random.choice((0, 8, directory, 2**32 - 1, len(data))))
        return bytes(changed)
    offset, form, values = random.choice(
        ((0, "H", (0x0100, 0x0101, 0x0102, 0x0103, 0x0112, 0x0111, 0x0117, 0x8769)), (2, "H", (0, 1, 2, 3, 4, 5, 12,
        99)),
         (4, "I", _SIZES), (8, "I", _SIZES))
    )  # fmt: skip
    struct.pack_into(f"{order}{form}", changed, entry + offset, random.choice(values))
    return bytes(changed)


def _splice(data: bytes, random: Random) -> bytes:
    other = encode_sample(random.choice(FORMATS))
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other)) :]


def _set_invalid_orientation(data: bytes, random: Random) -> bytes:
    """Set an invalid Exif orientation, or one outside the file."""
    exif = b"Exif\0\0" + random.choice((b"II*\0\x08\0\0\0", b"MM\0*\0\0\0\x08", b"", b"II*\0\xff\xff\xff\xff"))
    exif += struct.pack("<HHHII", random.choice((0, 1, 65535)), 0x0112, 3, 1, random.randrange(0, 12)) + b"\0" * 4
    if data.startswith(b"\xff\xd8"):
        return b"\xff\xd8\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]
    if data.startswith(b"\x89PNG"):
        chunks = png_chunks(data)
        return _png([*chunks[:1], (b"eXIf", exif[6:]), *chunks[1:]])
    return mutate_octets(data, random)


IMAGES: Mapping[str, Callable[[bytes, Random], bytes]] = {
    "octets": mutate_octets,
    "chunks of a PNG": _change_png,
    "segments of a JPEG": _change_jpeg,
    "size": _change_size,
    "directory": _change_directory,
    "splice": _splice,
    "orientation": _set_invalid_orientation,
}
"""Mutators, by name."""
