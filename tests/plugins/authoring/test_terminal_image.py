"""Images in terminals."""

import base64
import io
import re
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from app.plugins.authoring.terminal_image import Graphics, graphics_of, show_image

PLAIN = {"TERM": "xterm-256color"}


def console_of(file: io.StringIO, **options: Any) -> Console:
    settings: dict[str, Any] = {"force_terminal": True, "color_system": "truecolor", **options}
    return Console(file=file, width=80, height=24, _environ={"TERM": "xterm-256color"}, **settings)


@pytest.mark.parametrize(
    ("environment", "graphics"),
    [
        (PLAIN, Graphics.BLOCKS),
        ({"TERM": "xterm-kitty"}, Graphics.KITTY),
        ({**PLAIN, "KITTY_WINDOW_ID": "1"}, Graphics.KITTY),
        ({**PLAIN, "TERM_PROGRAM": "ghostty"}, Graphics.KITTY),
        ({**PLAIN, "TERM_PROGRAM": "iTerm.app"}, Graphics.ITERM2),
        ({**PLAIN, "TERM_PROGRAM": "WezTerm"}, Graphics.ITERM2),
        ({**PLAIN, "LC_TERMINAL": "iTerm2"}, Graphics.ITERM2),
        ({**PLAIN, "KITTY_WINDOW_ID": "1", "TMUX": "/tmp/tmux"}, Graphics.BLOCKS),
        ({"TERM": "screen-256color", "LC_TERMINAL": "iTerm2"}, Graphics.BLOCKS),
    ],
)
def test_terminal_is_recognised_by_its_environment(environment: dict[str, str], graphics: Graphics) -> None:
    assert graphics_of(console_of(io.StringIO()), environment) is graphics


@pytest.mark.parametrize("options", [{"force_terminal": False}, {"color_system": "standard"}, {"no_color": True}])
def test_output_without_colours_or_terminal_has_no_images(options: dict[str, Any]) -> None:
    assert graphics_of(console_of(io.StringIO(), **options), PLAIN) is None


def paint(_: int | None) -> NDArray[np.uint8]:
    pixels = np.zeros((60, 40, 3), np.uint8)
    pixels[:30] = (255, 0, 0)
    pixels[30:] = (0, 0, 255)
    return pixels


def test_half_blocks_have_the_colours_of_both_pixels_and_fit_the_terminal() -> None:
    file = io.StringIO()
    show_image(console_of(file), Graphics.BLOCKS, paint)
    lines = file.getvalue().splitlines()
    assert len(lines) <= 24 - 8
    assert "38;2;255;0;0;48;2;255;0;0" in lines[0]
    assert "38;2;0;0;255;48;2;0;0;255" in lines[-1]
    widths = {line.count("▀") for line in lines}
    assert len(widths) == 1
    # Cells are twice as high as wide.
    assert widths.pop() / (2 * len(lines)) == pytest.approx(40 / 60, rel=0.1)


def decoded(text: str) -> NDArray[np.uint8]:
    pixels = cv2.imdecode(np.frombuffer(base64.b64decode(text), np.uint8), cv2.IMREAD_COLOR_RGB)
    return np.asarray(pixels, np.uint8)


def test_kitty_gets_a_png_in_chunks() -> None:
    file = io.StringIO()
    noise = np.random.default_rng(1).integers(0, 256, (60, 40, 3), np.uint8)
    show_image(console_of(file), Graphics.KITTY, lambda _: noise)
    commands = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", file.getvalue())
    assert commands[0][0].startswith("a=T,f=100,c=")
    assert len(commands) > 2
    assert all(keys.endswith("m=1") for keys, _ in commands[:-1])
    assert commands[-1][0] == "m=0"
    assert max(len(chunk) for _, chunk in commands) <= 4096
    assert np.array_equal(decoded("".join(chunk for _, chunk in commands)), noise)


def test_iterm2_gets_a_png() -> None:
    file = io.StringIO()
    show_image(console_of(file), Graphics.ITERM2, paint)
    match = re.fullmatch(r"\x1b\]1337;File=inline=1;size=(\d+);width=\d+:([^\x07]*)\x07\n", file.getvalue())
    assert match is not None
    assert int(match[1]) == len(base64.b64decode(match[2]))
    assert np.array_equal(decoded(match[2]), paint(None))
