"""Send two thousand requests of `make fuzz` to a real server, and replay earlier findings."""

from pathlib import Path

import pytest

from tests.fuzz.answers import Connection
from tests.fuzz.campaign import SHARES, Share, known_good_answers, send_chunk
from tests.fuzz.models import write_models
from tests.fuzz.server import addresses_of, fuzzed_server, log_faults

SEED = 10
RECORDING = ("--record", "OUT/inferences.db", "--record-images", "OUT/images")

# Raw requests that once broke the server, and the expected statuses.
REGRESSIONS: dict[str, tuple[bytes, list[int]]] = {
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
def test_part_of_the_campaign_has_no_findings(tmp_path: Path) -> None:
    write_models(tmp_path / "models")
    arguments = [option.replace("OUT", str(tmp_path)) for option in RECORDING]
    with fuzzed_server(tmp_path / "models", arguments) as server:
        addresses = addresses_of(server)
        for name, (data, statuses) in REGRESSIONS.items():
            connection = Connection(addresses["http"], 30)
            assert [
                event.status for event in connection.send_raw(data, half_close=False) if event.status >= 200
            ] == statuses, name
            connection.close()
        share: Share = SHARES[0]
        known_answers = known_good_answers(addresses, share.protocols)
        assert all(b"200 " in answer or answer.startswith(b"OK") for answer in known_answers.values())
        for start in range(0, 2000, 500):
            tally = send_chunk(addresses, SEED, range(start, start + 500), share.protocols, known_answers)
            assert [
                (finding.sent.index, finding.sent.case, finding.outcome.finding) for finding in tally.findings
            ] == []
            assert tally.requests == 500
        assert server.stop() == 0
    assert not log_faults(server.log)
