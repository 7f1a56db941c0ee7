"""Measure inference throughput while clients read recordings without pause."""

import statistics
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.serving.flood import FloodResult, flood, request_bytes
from tests.benchmarks.serving.processes import charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.workload import Workload

_READERS = (4, 16)
_CONNECTIONS = 4
_ROUNDS = 2
_STARTING_SECONDS = 2
_RECORDED = 200
_PAGE = "/inferences?limit=50"


def readers(workload: Workload, seconds: float) -> Section:
    """Compare answers a second with and without readers, in turns."""
    rows: list[list[Cell]] = []
    with TemporaryDirectory() as folder:
        store = str(Path(folder) / "store.db")
        with charioteer("--model", str(workload.folder / "small"), "--record", store) as server:
            port = server.ports["http"]
            request = chariot(port, "small", workload.images["vga"])
            infer, read = request_bytes("POST", request.target, request.body), request_bytes("GET", _PAGE)
            recorded = 0
            while recorded < _RECORDED:
                recorded += flood(port, infer, _CONNECTIONS, 1).statuses.get(200, 0)
            for count in _READERS:
                alone: list[float] = []
                with_readers: list[float] = []
                pages: list[FloodResult] = []
                for _ in range(_ROUNDS):
                    alone.append(flood(port, infer, _CONNECTIONS, seconds).goodput)
                    # Readers start before the inferences, and end after them.
                    reading = threading.Thread(
                        target=lambda pages=pages, count=count: pages.append(
                            flood(port, read, count, seconds + 2 * _STARTING_SECONDS)
                        )
                    )
                    reading.start()
                    time.sleep(_STARTING_SECONDS)
                    with_readers.append(flood(port, infer, _CONNECTIONS, seconds).goodput)
                    reading.join()
                rates = statistics.median(alone), statistics.median(with_readers)
                rows.append([count, *rates, rates[1] / rates[0], pages[-1].goodput, pages[-1].refused])
    about = (
        f"The small model and the VGA image over {_CONNECTIONS} connections in a closed loop, in turns with and "
        f"without readers. A reader requests `{_PAGE}` again after each answer or refusal. Readers start before the "
        "inferences and end after them, so the server also answers them alone."
    )
    columns = [
        "readers",
        "inferences alone, 1/s",
        "beside readers, 1/s",
        "beside / alone",
        "pages, 1/s",
        "refused, 1/s",
    ]
    return Section(title="Readers of recordings", about=about, columns=columns, rows=rows)
