"""Two thousand of the requests that `make fuzz` sends, against a real server, and what it has found before."""

from pathlib import Path

import pytest

from tests.fuzz.answers import Connection
from tests.fuzz.campaign import SHARES, Share, known_good, sent_chunk
from tests.fuzz.served import write_models
from tests.fuzz.server import addresses_of, faults_in, fuzzed_server

SEED = 10
RECORDING = ("--record", "OUT/inferences.db", "--record-images", "OUT/images")

# What broke the server once: bytes, and the statuses they are owed.
FOUND: dict[str, tuple[bytes, list[int]]] = {
    "host with an invalid port": (
        b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1:99999\r\nConnection: close\r\n\r\n",
        [404],
    ),
    "refused while it waits to go on": (
        b"POST /v2/models/detector/infer HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        [400],
    ),
    "rubbish behind a request": (
        b"POST /v2/models/detector/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}\0\0\0\r\n\r\n",
        [400],
    ),
}


@pytest.mark.slow
def test_a_slice_of_the_campaign(tmp_path: Path) -> None:
    write_models(tmp_path / "models")
    arguments = [option.replace("OUT", str(tmp_path)) for option in RECORDING]
    with fuzzed_server(tmp_path / "models", arguments) as server:
        addresses = addresses_of(server)
        for name, (data, statuses) in FOUND.items():
            connection = Connection(addresses["http"], 30)
            assert [
                event.status for event in connection.throw(data, half_close=False) if event.status >= 200
            ] == statuses, name
            connection.close()
        share: Share = SHARES[0]
        good = known_good(addresses, share.protocols)
        assert all(b"200 " in answer or answer.startswith(b"OK") for answer in good.values())
        for at in range(0, 2000, 500):
            tally = sent_chunk(addresses, SEED, range(at, at + 500), share.protocols, good)
            assert [(finding.sent.index, finding.sent.case, finding.got.finding) for finding in tally.findings] == []
            assert tally.requests == 500
        assert server.stop() == 0
    assert not faults_in(server.log)
