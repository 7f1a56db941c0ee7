"""A few seconds of the soak, against a real server."""

from pathlib import Path

import pytest

from tests.soak.session import Options, soak

FAULTS = ["model unloaded and loaded", "rubbish", "clients that leave", "oversized bodies", "SIGKILL and restart"]


@pytest.mark.slow
def test_a_server_answers_right_whatever_is_done_to_it(tmp_path: Path) -> None:
    result = soak(Options(seconds=4, seed=5, rate=15, pause=0.1, only=FAULTS), tmp_path / "log")
    assert result.failures == []
    requests, faults = result.sections[0], result.sections[2]
    assert [row[0] for row in faults.rows] == sorted(FAULTS)
    whole = requests.rows[-1]
    assert whole[0] == "all"
    assert isinstance(whole[2], int)
    assert whole[2] > 30
