"""Memory of lines into a model's process: what is given back, and what does not arrive."""

import os
import pickle
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app.runtimes.isolated.lines import Lines
from app.runtimes.isolated.memory import LARGEST_KEPT
from app.runtimes.isolated.messages import Failure, Question
from tasks.exchange.error import ErrorKind
from tasks.object_detection import DetectionInput, DetectionParameters
from tasks.vision.image import Image
from tests.app.runtimes.isolated.test_lines import open_lines, picture


def test_large_memory_is_given_back_by_both_ends() -> None:
    def sizes(inputs: Sequence[DetectionInput]) -> Sequence[int]:
        return [each.image.pixels.size for each in inputs]

    with open_lines(sizes) as lines:
        for side in (4800, 100, 4800):
            image = Image(np.zeros((side, side, 3), np.uint8))
            with lines.for_call() as line:
                assert line.ask("predict", [DetectionInput(image, DetectionParameters())]).outcome == [
                    image.pixels.size
                ]
        assert max(shared_memory(), default=0) <= LARGEST_KEPT


def shared_memory() -> list[int]:
    """Bytes of each view that this process, which is both ends, has of memory for pictures."""
    views = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if "charioteer-pic" in line]
    return [int(end, 16) - int(start, 16) for start, _, end in (view.partition("-") for view in views)]


def test_inputs_that_did_not_arrive_are_refused_and_the_next_are_read() -> None:
    with open_lines() as lines:
        _refused(lines)


def _refused(lines: Lines) -> None:
    line = lines.take()
    question = pickle.dumps(Question("predict", b"", ((0, 4096),)))
    os.write(line.fileno(), struct.pack("<QQ", len(question), 4096) + question)
    with lines.for_call() as other:
        assert len(other.ask("predict", [picture()]).outcome) == 1
    reply = line.ask("detail", (640, 480))
    assert isinstance(reply.outcome, Failure)
    assert (reply.outcome.kind, reply.kept) == (ErrorKind.OVERLOADED, True)
    lines.give_back(line)
