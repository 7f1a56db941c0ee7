"""Record which functions one request calls in a real server.

The calls do not depend on the speed of the machine. Print them with
``python -m tests.support.request_trace MODEL PATH BODY_FILE``.
"""

import http.client
import json
import os
import socket
import sys
import tempfile
from pathlib import Path

import httpx
import msgspec

from tests.support.servers.server_process import ROOT, run_server

_WARM_UP_REQUESTS = 30
_TRACED_REQUESTS = 5
_HEADERS = {"Accept": "*/*", "Accept-Encoding": "gzip, deflate", "Connection": "keep-alive", "User-Agent": "trace"}


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A call of a Python function.

    Attributes:
        file: the absolute path of its file.
        function: its qualified name.
        line: its first line.
        thread: the name of the thread.
        caller: file and function of the nearest caller in this project; both empty if there is none.
    """

    file: str
    function: str
    line: int
    thread: str
    caller: tuple[str, str]


class Trace(msgspec.Struct):
    """The calls of one request in the event loop and in a worker, without those of periodic tasks.

    Attributes:
        calls: the called Python functions in order, those of dependencies included.
        c_calls: number of calls of functions in C.
    """

    calls: list[Call]
    c_calls: int

    def own_files(self) -> list[str]:
        """Return the files of this project, relative to the repository, in the order of their first call."""
        return list(dict.fromkeys(call.file.removeprefix(f"{ROOT}/") for call in self.calls if _is_own(call.file)))

    def way(self) -> list[tuple[str, str]]:
        """Return file and function of all functions that call a function of another file, in order of first call."""
        leaving = {call.caller for call in self.calls if _is_own(call.file) and call.caller[0] not in ("", call.file)}
        functions = dict.fromkeys((call.file, call.function) for call in self.calls)
        return [(file.removeprefix(f"{ROOT}/"), name) for file, name in functions if (file, name) in leaving]


def _is_own(file: str) -> bool:
    return file.startswith(tuple(f"{ROOT}/{package}/" for package in ("app", "metadata", "tasks")))


def trace_request(
    model: str, path: str, body: bytes, content_type: str = "application/json", address: str = "address"
) -> Trace:
    """Return the calls of one request after some others on one connection, to a `model` in a folder of the repository.

    Of several requests, the one with the fewest calls counts: the network may cut a request into more packets. The
    attribute `address` of `ServerProcess` has the URL of the port.
    """
    with tempfile.TemporaryDirectory() as folder:
        commands, replies = Path(folder, "commands"), Path(folder, "replies")
        os.mkfifo(commands)
        os.mkfifo(replies)
        environment = {
            **os.environ,
            "PYTHONPATH": f"{Path(__file__).parent / 'tracing'}:{os.environ.get('PYTHONPATH', '')}",
            "TRACE_COMMANDS": str(commands),
            "TRACE_REPLIES": str(replies),
        }
        with (
            run_server("--model", model, environment=environment) as server,
            commands.open("w") as command_pipe,
            replies.open() as reply_pipe,
            _connect(getattr(server, address)) as connection,
            connection.makefile("rb") as responses,
        ):
            url = httpx.URL(getattr(server, address)).join(path)
            # The headers of a usual client, in one packet with the body.
            fields = {**_HEADERS, "Content-Type": content_type}
            headers = httpx.Request("POST", url, content=body, headers=fields).headers
            head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            message = f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body

            def send() -> None:
                connection.sendall(message)
                status = responses.readline()
                assert b" 200 " in status, status
                received = http.client.parse_headers(responses)
                responses.read(int(received["content-length"]))

            def control(command: str) -> str:
                command_pipe.write(f"{command}\n")
                command_pipe.flush()
                return reply_pipe.readline()

            for _ in range(_WARM_UP_REQUESTS):
                send()
            traces: list[Trace] = []
            for _ in range(_TRACED_REQUESTS):
                control("start")
                send()
                traces.append(msgspec.json.decode(control("stop"), type=Trace))
    return min(traces, key=lambda trace: len(trace.calls))


def _connect(address: str) -> socket.socket:
    url = httpx.URL(address)
    return socket.create_connection((url.host, url.port or 80), timeout=60)


def main() -> None:
    model, path, body_file = sys.argv[1:]
    body = Path(body_file).read_bytes()
    is_json = body[:1] == b"{"
    trace = trace_request(model, path, body, "application/json" if is_json else "application/octet-stream")
    for call in trace.calls:
        file = call.file.removeprefix(f"{ROOT}/")
        print(f"{call.thread:14} {file}:{call.line} {call.function}")  # noqa: T201
    way = trace.way()
    print("\nFunctions that call another file:")  # noqa: T201
    for file, function in way:
        print(f"{file} {function}")  # noqa: T201
    counts = {
        "calls": len(trace.calls),
        "c_calls": trace.c_calls,
        "files": len(trace.own_files()),
        "functions_of_the_way": len(way),
        "files_of_the_way": len({file for file, _ in way}),
    }
    print(json.dumps(counts))  # noqa: T201


if __name__ == "__main__":
    main()
