"""What the server adds: CPU milliseconds of one detection request, in the server and in `benchmarks/floor.py`.

Both are measured in turns in one run, and the ratio is of their medians. Server time is that of the whole process, read
from /proc; the client's is not in it. Usage: ``python benchmarks/overhead.py`` (or ``make bench``).
"""

import argparse
import base64
import http.client
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import cv2
import msgspec

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "fixtures" / "models" / "detector" / "model.onnx"
PICTURE = ROOT / "fixtures" / "images" / "scene.jpg"
_ADDRESS = re.compile(r"http://[\d.]+:(\d+)")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=300, help="in each round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 8])
    options = parser.parse_args()
    body = request_body()
    print(f"all fixture models ready after {statistics.median(ready_seconds() for _ in range(3)):.2f} s (median of 3)")
    with tempfile.NamedTemporaryFile() as file, server() as (process, port):
        Path(file.name).write_bytes(body)
        post(port, body, 50)
        print(f"detector, {PICTURE.name} {picture_size()}, body {len(body) / 1000:.0f} kB, CPU ms per request (median)")
        for concurrency in options.concurrency:
            floors: list[float] = []
            servers: list[float] = []
            for _ in range(options.rounds):
                floors.append(floor(file.name, options.requests))
                before = cpu_seconds(process.pid)
                send(port, body, options.requests, concurrency)
                servers.append((cpu_seconds(process.pid) - before) / options.requests * 1000)
            low, high = statistics.median(floors), statistics.median(servers)
            print(
                f"  concurrency {concurrency}: floor {low:.2f}, server {high:.2f}, ratio {high / low:.2f}", flush=True
            )


def ready_seconds() -> float:
    """From the start of the process to the moment when every fixture model answers."""
    started = time.perf_counter()
    with server(models=()):
        return time.perf_counter() - started


def request_body() -> bytes:
    """The README's request."""
    data = base64.b64encode(PICTURE.read_bytes()).decode()
    return msgspec.json.encode({"inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [data]}]})


def picture_size() -> str:
    """Width and height of the picture sent."""
    height, width = cv2.imread(str(PICTURE)).shape[:2]
    return f"{width}x{height}"


@contextmanager
def server(models: Sequence[str] = ("--model", str(MODEL))) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server of `models`, as a user starts it, and its port; it is there once its models are loaded."""
    command = [sys.executable, "-m", "app", "serve", *models, "--port", "0", "--grpc-port", "0"]
    command += ["--tensorflow-serving-port", "0", "--log-format", "json"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            port = next(int(found[1]) for line in process.stderr if (found := _ADDRESS.search(line)))
            threading.Thread(target=lambda: log.writelines(process.stderr or ()), daemon=True).start()
            yield process, port
        finally:
            process.terminate()
            process.wait()


def floor(body: str, requests: int) -> float:
    """CPU milliseconds of one request in the floor's own process."""
    command = [sys.executable, "-m", "benchmarks.floor", str(MODEL), body, str(requests)]
    return float(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def send(port: int, body: bytes, requests: int, concurrency: int) -> None:
    """Send requests over so many connections at once."""
    share = requests // concurrency
    counts = [share + (index < requests % concurrency) for index in range(concurrency)]
    threads = [threading.Thread(target=post, args=(port, body, count)) for count in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def post(port: int, body: bytes, count: int) -> None:
    """Send requests one after the other over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for _ in range(count):
        connection.request("POST", "/infer", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        assert response.status == 200, response.status
    connection.close()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far (proc_pid_stat(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
