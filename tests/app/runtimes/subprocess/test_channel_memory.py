"""Test the shared memory of lines: large blocks are released, and lost blocks are reported."""

import os
import pickle
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app.runtimes.remote import Failure
from app.runtimes.subprocess.channels import ChannelPool
from app.runtimes.subprocess.memory import MAX_REUSED_BYTES
from app.runtimes.subprocess.messages import Call
from tasks.inference.error import ErrorKind
from tasks.object_detection import DetectionInput, DetectionParameters
from tasks.vision.image import Image
from tests.app.runtimes.subprocess.test_channels import detection_input, open_lines


def test_large_shared_memory_is_released_by_both_ends() -> None:
    def sizes(inputs: Sequence[DetectionInput]) -> Sequence[int]:
        return [item.image.pixels.size for item in inputs]

    with open_lines(sizes) as lines:
        for side in (4800, 100, 4800):
            image = Image(np.zeros((side, side, 3), np.uint8))
            with lines.for_call() as line:
                assert line.call("predict", [DetectionInput(image, DetectionParameters())]).outcome == [
                    image.pixels.size
                ]
        assert max(shared_memory_sizes(), default=0) <= MAX_REUSED_BYTES


def shared_memory_sizes() -> list[int]:
    """Return the size of each mapping of image memory; this process holds both ends."""
    views = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if "charioteer-pic" in line]
    return [int(end, 16) - int(start, 16) for start, _, end in (view.partition("-") for view in views)]


def test_inputs_whose_memory_is_lost_are_rejected_and_next_are_read() -> None:
    with open_lines() as lines:
        _check_lost_memory_is_rejected(lines)


def _check_lost_memory_is_rejected(lines: ChannelPool) -> None:
    line = lines.acquire()
    question = pickle.dumps(Call("predict", b"", ((0, 4096),)))
    os.write(line.fileno(), struct.pack("<QQ", len(question), 4096) + question)
    with lines.for_call() as other:
        assert len(other.call("predict", [detection_input()]).outcome) == 1
    reply = line.call("downscale", (640, 480))
    assert isinstance(reply.outcome, Failure)
    assert (reply.outcome.kind, reply.memory_in_use) == (ErrorKind.OVERLOADED, True)
    lines.release(line)
