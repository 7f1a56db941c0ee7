"""Show images in a terminal."""

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import cv2
import numpy as np
from rich.color import Color
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

from app.plugins.drawing.image import Pixels

_MAX_COLUMNS = 100
_OTHER_LINES = 8
"""Lines of the terminal that stay free for the table and the prompt."""
_MAX_SIDE = 1024
"""Larger images are downscaled before they are sent: terminals show no more, and connections may be slow."""
_KITTY_CHUNK = 4096


class Graphics(StrEnum):
    """How a terminal shows images."""

    KITTY = "kitty"
    ITERM2 = "iterm2"
    BLOCKS = "blocks"


def graphics_of(console: Console, environment: Mapping[str, str] = os.environ) -> Graphics | None:
    """Return how the terminal of `console` shows images; None if its output is no terminal or has too few colours."""
    if not console.is_terminal or console.is_dumb_terminal or console.no_color:
        return None
    program, term = environment.get("TERM_PROGRAM", ""), environment.get("TERM", "")
    # tmux and screen pass no graphics on unless they are configured to.
    if "TMUX" not in environment and not term.startswith(("tmux", "screen")):
        if "KITTY_WINDOW_ID" in environment or term in ("xterm-kitty", "xterm-ghostty") or program == "ghostty":
            return Graphics.KITTY
        if program in ("iTerm.app", "WezTerm") or environment.get("LC_TERMINAL") == "iTerm2":
            return Graphics.ITERM2
    return Graphics.BLOCKS if console.color_system in ("256", "truecolor") else None


def show_image(console: Console, graphics: Graphics, paint: Callable[[int | None], Pixels]) -> None:
    """Print an image that fits the terminal.

    `paint` returns (height, width, 3) RGB pixels, given the width in pixels at which they are shown; None if the
    terminal shows all pixels.
    """
    image = paint(None)
    height, width = image.shape[:2]
    # A cell is about twice as high as wide.
    lines = max(4, console.height - _OTHER_LINES)
    columns = max(1, min(console.width, _MAX_COLUMNS, round(2 * lines * width / height)))
    if graphics is Graphics.BLOCKS:
        rows = max(2, round(columns * height / width))
        pixels = cv2.resize(paint(columns), (columns, rows + rows % 2), interpolation=cv2.INTER_AREA)
        console.print(Segments(_blocks(np.asarray(pixels, np.uint8))), end="")
        return
    png = _png(image)
    sequence = _kitty(png, columns) if graphics is Graphics.KITTY else _iterm2(png, columns)
    console.file.write(sequence + "\n")


def _blocks(pixels: Pixels) -> Sequence[Segment]:
    """Return one half block for two pixels, the upper one as its colour and the lower one as its background."""
    segments: list[Segment] = []
    for upper, lower in zip(pixels[::2].tolist(), pixels[1::2].tolist(), strict=True):
        segments += [
            Segment("▀", Style(color=Color.from_rgb(*top), bgcolor=Color.from_rgb(*bottom)))
            for top, bottom in zip(upper, lower, strict=True)
        ]
        segments.append(Segment.line())
    return segments


def _png(pixels: Pixels) -> bytes:
    scale = min(1.0, _MAX_SIDE / max(pixels.shape[:2]))
    shown = cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA) if scale < 1 else pixels
    return cv2.imencode(".png", cv2.cvtColor(shown, cv2.COLOR_RGB2BGR))[1].tobytes()


def _kitty(png: bytes, columns: int) -> str:
    """Return the escape sequences of kitty's graphics protocol."""
    text = base64.b64encode(png).decode()
    chunks = [text[start : start + _KITTY_CHUNK] for start in range(0, len(text), _KITTY_CHUNK)]
    keys = [f"a=T,f=100,c={columns},", *[""] * (len(chunks) - 1)]
    more = [*[1] * (len(chunks) - 1), 0]
    return "".join(f"\x1b_G{key}m={m};{chunk}\x1b\\" for key, m, chunk in zip(keys, more, chunks, strict=True))


def _iterm2(png: bytes, columns: int) -> str:
    """Return the escape sequence of iTerm2's inline images."""
    return f"\x1b]1337;File=inline=1;size={len(png)};width={columns}:{base64.b64encode(png).decode()}\x07"
