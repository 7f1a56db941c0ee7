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
def test_command_has_the_options_of_image_limits(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "red square"
    folder.mkdir()
    image = folder / "a.avif"
    image.write_bytes(encode_image(rectangle(64, 48), "AVIF"))
    accepted = charioteer(*command(image), "--max-pixels", "3072", "--allow-avif-jpeg2000")
    assert accepted.returncode == 0, accepted.stderr
    too_large = charioteer(*command(image), "--max-pixels", "3071", "--allow-avif-jpeg2000")
    assert too_large.returncode != 0
    assert "Expected an image of at most 3,071 pixels (--max-pixels), got 64x48 = 3,072" in too_large.stderr
    avif = charioteer(*command(image))
    assert avif.returncode != 0
    assert "the option --allow-avif-jpeg2000 enables them" in avif.stderr
