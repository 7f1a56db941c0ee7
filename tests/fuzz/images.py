"""Create small images in every format, as input for mutators."""

import base64 as encoding
import io
from functools import cache
from typing import Literal, overload

import numpy as np
import PIL.Image
import PIL.PngImagePlugin

FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP", "PPM", "PALETTE", "GREY16", "ANIMATED", "PROGRESSIVE", "CMYK")


@overload
def encode_sample(kind: str, *, base64: Literal[True]) -> str: ...
@overload
def encode_sample(kind: str, *, base64: Literal[False] = False) -> bytes: ...
def encode_sample(kind: str, *, base64: bool = False) -> bytes | str:
    """Return an image in one of the `FORMATS`, with Exif, text and profiles if the format has them.

    Args:
        kind: one of the `FORMATS`.
        base64: return base64 text.
    """
    data = _encoded(kind)
    return encoding.b64encode(data).decode() if base64 else data


@cache
def _encoded(kind: str) -> bytes:
    pixels = np.zeros((24, 32, 3), np.uint8)
    pixels[6:18, 8:22] = (250, 30, 20)
    image = PIL.Image.fromarray(pixels)
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    exif[0x010F] = "camera"
    options: dict[str, object] = {}
    file_format = kind
    match kind:
        case "JPEG" | "WEBP" | "TIFF":
            options = {"exif": exif.tobytes()}
        case "PNG":
            text = PIL.PngImagePlugin.PngInfo()
            text.add_text("comment", "red", zip=True)
            options = {"exif": exif.tobytes(), "pnginfo": text, "icc_profile": b"profile" * 9}
        case "PALETTE":
            image, file_format = image.quantize(4), "PNG"
        case "GREY16":
            image, file_format = PIL.Image.fromarray(pixels[..., 0].astype(np.uint16) * 200), "PNG"
        case "ANIMATED":
            file_format = "GIF"
            options = {"save_all": True, "append_images": [image.rotate(90), image.rotate(180)]}
        case "PROGRESSIVE":
            file_format, options = "JPEG", {"progressive": True}
        case "CMYK":
            image, file_format = image.convert("CMYK"), "JPEG"
        case _:
            pass
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()
