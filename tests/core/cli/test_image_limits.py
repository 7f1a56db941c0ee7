"""Limits on images in commands that run a model."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_line import charioteer
from tests.support.data.images import encode_image, rectangle
from tests.support.servers.server_process import ROOT

DETECTOR = ROOT / "fixtures" / "models" / "detector"
CLASSIFIER = ROOT / "fixtures" / "models" / "classifier"
Command = Callable[[Path], list[str | Path]]
COMMANDS: dict[str, Command] = {
    "predict": lambda image: ["predict", image, "--model", DETECTOR],
    "explain": lambda image: ["explain", image, "--model", CLASSIFIER, "--samples", "1"],
    "check": lambda image: ["check", DETECTOR, "--image", image],
    "tune": lambda image: [
        *("tune", DETECTOR, "--image", image, "--seconds", "0.01"),
        *("--runtimes", "onnxruntime", "--batches", "1", "--threads", "1"),
    ],
    "evaluate": lambda image: ["evaluate", image.parent.parent, "--model", CLASSIFIER],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_image_above_max_pixels_is_rejected_with_the_option(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "red square"
    folder.mkdir()
    image = folder / "a.png"
    image.write_bytes(encode_image(rectangle(64, 48)))
    assert charioteer(*command(image), "--max-pixels", "3072").returncode == 0
    rejected = charioteer(*command(image), "--max-pixels", "3071")
    assert rejected.returncode != 0
    assert "Expected an image of at most 3,071 pixels (--max-pixels), got 64x48 = 3,072" in rejected.stderr


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_avif_image_is_read_with_the_option(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "red square"
    folder.mkdir()
    image = folder / "a.avif"
    image.write_bytes(encode_image(rectangle(64, 48), "AVIF"))
    rejected = charioteer(*command(image))
    assert rejected.returncode != 0
    assert "the option --allow-avif-jpeg2000 enables them" in rejected.stderr
    assert charioteer(*command(image), "--allow-avif-jpeg2000").returncode == 0
