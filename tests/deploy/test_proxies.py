"""Proxies with the files of deploy/proxy before a real server. Skipped for a proxy that is not installed."""

import shutil
import socket
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

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
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    file, arguments, (listening, replacement) = PROXIES[name]
    (port,) = reserve_ports(1)
    config = (_FOLDER / file).read_text()
    config = config.replace("127.0.0.1:8080", server.address.removeprefix("http://"))
    config = config.replace(listening, replacement.format(port))
    process = subprocess.Popen([program, *arguments(folder, config)], stderr=subprocess.DEVNULL)
    try:
        # Requests would count for the limits.
        wait_until(lambda: _listens(port))
        yield port
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
