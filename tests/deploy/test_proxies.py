"""Proxies with the files of deploy/proxy before a real server. Skipped for a proxy that is not installed."""

import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import grpc
import httpx
import pytest

from app.core.proto import message_class
from app.core.settings.server import DEMO_MODELS
from tests.support.data.chariot import image_input
from tests.support.polling import wait_until
from tests.support.servers.ports import reserve_ports
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

pytestmark = pytest.mark.slow

_FOLDER = ROOT / "deploy" / "proxy"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with run_server("--demo", "--no-grpc", "--no-tensorflow-serving", "--allowed-hosts", "*") as running:
        yield running


def _nginx(folder: Path, config: str) -> list[str]:
    main = folder / "main.conf"
    paths = "".join(
        f"{name}_temp_path {folder / name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main.write_text(f"pid {folder}/pid; error_log stderr;\nevents {{}}\nhttp {{ access_log off;\n{paths}{config} }}\n")
    return ["-p", str(folder), "-c", str(main), "-g", "daemon off;"]


def _haproxy(folder: Path, config: str) -> list[str]:
    file = folder / "haproxy.cfg"
    file.write_text(config)
    return ["-db", "-f", str(file)]


PROXIES: dict[str, tuple[str, Callable[[Path, str], list[str]], tuple[str, str]]] = {
    "nginx": ("nginx.conf", _nginx, ("listen 80;", "listen 127.0.0.1:{};")),
    "haproxy": ("haproxy.cfg", _haproxy, ("bind :80", "bind 127.0.0.1:{}")),
}


@contextmanager
def running_proxy(name: str, server: ServerProcess, folder: Path) -> Generator[int]:
    """Run a proxy before the server, and yield its port."""
    file, arguments, (listening, replacement) = PROXIES[name]
    (port,) = reserve_ports(1)
    config = (_FOLDER / file).read_text()
    config = config.replace("127.0.0.1:8080", server.address.removeprefix("http://"))
    with running(name, arguments(folder, config.replace(listening, replacement.format(port))), port):
        yield port


@contextmanager
def running(name: str, arguments: Sequence[str], port: int) -> Generator[None]:
    """Run a proxy that listens on `port`."""
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    process = subprocess.Popen([program, *arguments], stderr=subprocess.DEVNULL)
    try:
        # Requests would count for the limits.
        wait_until(lambda: _listens(port))
        yield
    finally:
        process.terminate()
        process.wait(60)


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("name", PROXIES)
def test_proxy_passes_inferences_and_limits_strangers(name: str, server: ServerProcess, tmp_path: Path) -> None:
    with running_proxy(name, server, tmp_path) as port:
        url = f"http://127.0.0.1:{port}"
        body = {"inputs": [image_input()]}
        answer = httpx.post(f"{url}/v2/models/m-detector/infer", json=body, timeout=60)
        assert answer.status_code == 200
        upgrade = {"connection": "upgrade", "upgrade": "h2c"}
        assert httpx.post(f"{url}/v2/models/detector/infer", json=body, headers=upgrade, timeout=60).status_code == 200
        assert httpx.post(f"{url}/infer", content=b"x" * (64 * 1024 * 1024 + 1), timeout=60).status_code == 413
        with closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n")
            assert slow.recv(65536)[:12] in (b"", b"HTTP/1.1 408")


def test_restart_of_each_process_loses_no_request(tmp_path: Path) -> None:
    front, front_grpc, *ports = reserve_ports(6)
    config = (_FOLDER / "haproxy_processes.cfg").read_text()
    # Two of the four processes are enough.
    config = re.sub(r"^ +server process-8[23] .*\n", "", config, flags=re.MULTILINE)
    for documented, port in zip(("8080", "8081", "8180", "8181"), ports, strict=True):
        config = re.sub(rf"(:|port ){documented}\b", rf"\g<1>{port}", config)
    config = config.replace("bind :80\n", f"bind 127.0.0.1:{front}\n").replace(
        "bind :8001", f"bind 127.0.0.1:{front_grpc}"
    )
    options = ("--model-dir", str(DEMO_MODELS / "detector"), "--drain-delay", "5", "--no-tensorflow-serving")
    url = f"http://127.0.0.1:{front}/v2/models/m-detector/infer"
    statuses, done = list[int](), threading.Event()

    def start(index: int) -> ServerProcess:
        http_port, grpc_port = map(str, ports[2 * index : 2 * index + 2])
        server = ServerProcess(*options, "--port", http_port, "--grpc-port", grpc_port)
        assert server.address
        return server

    def send() -> None:
        while not done.is_set():
            # Each request has a connection of its own, as from many clients.
            statuses.append(httpx.post(url, json={"inputs": [image_input()]}, timeout=60).status_code)

    with ExitStack() as stack:
        servers = [start(index) for index in range(2)]
        stack.callback(lambda: [server.stop() for server in servers])
        stack.enter_context(running("haproxy", _haproxy(tmp_path, config), front))
        clients = [threading.Thread(target=send) for _ in range(4)]
        for client in clients:
            client.start()
        stack.callback(lambda: [client.join() for client in clients])
        stack.callback(done.set)
        for index in range(2):
            assert servers[index].stop() == 0
            restarted = servers[index] = start(index)
            # The next one stops when the proxy sends requests to this one again.
            wait_until(
                lambda server=restarted: "charioteer_inferences_total{" in httpx.get(f"{server.address}/metrics").text
            )
        with grpc.insecure_channel(f"127.0.0.1:{front_grpc}") as channel:
            response = channel.unary_unary("/inference.GRPCInferenceService/ServerReady")(b"", timeout=60)
            assert message_class("inference.ServerReadyResponse").FromString(response).ready
    assert {*statuses} == {200}
