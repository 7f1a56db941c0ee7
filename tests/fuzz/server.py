"""Run the server to fuzz in its own process, as users start it."""

import json
import re
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.fuzz.requests import Port
from tests.support.servers.server_process import ServerProcess, run_server


@contextmanager
def fuzzed_server(models: Path, arguments: Sequence[str] = ()) -> Generator[ServerProcess]:
    """Serve the models of `write_models`."""
    options = ["--model-repository", str(models), "--allow-code", "--max-explanation-seconds", "0.2", *arguments]
    with run_server(*options) as server:
        yield server


def addresses_of(server: ServerProcess) -> Mapping[Port, tuple[str, int]]:
    """Return host and port of each of its ports."""
    urls: dict[Port, str] = {
        "http": server.address.removeprefix("http://"),
        "tensorflow-serving": server.tensorflow_serving_address.removeprefix("http://"),
        "grpc": server.grpc_address,
    }
    return {port: (url.rpartition(":")[0], int(url.rpartition(":")[2])) for port, url in urls.items()}


def resident_bytes(server: ServerProcess) -> int:
    """Return the resident memory of the server in bytes; 0 if it has exited."""
    status = Path(f"/proc/{server.process.pid}/status")
    sizes = re.findall(r"VmRSS:\s+(\d+) kB", status.read_text()) if status.exists() else []
    return int(sizes[0]) * 1024 if sizes else 0


def log_faults(log: Sequence[str]) -> Counter[str]:
    """Count log lines that no request may cause: errors, tracebacks, and lines that are not JSON."""
    faults: Counter[str] = Counter()
    for line in log:
        try:
            record = json.loads(line)
        except ValueError:
            faults[f"no record: {line[:100]}"] += 1
            continue
        if record.get("level") not in ("debug", "info", "warning") or "exception" in record:
            last = str(record.get("exception", "")).strip().splitlines()[-1:]
            faults[f"{record.get('level')}: {record.get('event')} {' '.join(last)}"[:200]] += 1
    return faults
