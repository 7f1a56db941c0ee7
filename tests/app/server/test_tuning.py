"""What is made of the process before its first request."""

import subprocess
import sys

# A packet is one write: whatever lies between two of them, a log line may lie there too.
_PIECES = """
import os, socket
kept, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
os.dup2(given.fileno(), 2)
from app.server.tuning import tune_process
tune_process()
import cv2, numpy as np
from tests.pictures import encoded, rectangle
data = encoded(rectangle(), icc_profile=b"profile" * 9)
for _ in range(3):
    assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) is not None
kept.setblocking(False)
for _ in range(3):
    print(kept.recv(1000).decode(), end="")
"""


def test_what_a_decoder_says_of_an_image_is_whole_lines() -> None:
    said = subprocess.run([sys.executable, "-c", _PIECES], capture_output=True, text=True, check=True).stdout
    assert said == "libpng warning: iCCP: too short\n" * 3
