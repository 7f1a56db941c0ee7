"""Run the soak test for a few seconds."""

from pathlib import Path

import pytest

from tests.soak.session import Options, soak

FAULTS = ["model unloaded and loaded", "rubbish", "clients that leave", "oversized bodies", "SIGKILL and restart"]


@pytest.mark.slow
def test_server_answers_correctly_during_faults(tmp_path: Path) -> None:
    result = soak(Options(seconds=4, seed=5, rate=15, pause=0.1, only=FAULTS), tmp_path / "log")
    assert result.failures == []
    requests, faults = result.sections[0], result.sections[2]
    assert [row[0] for row in faults.rows] == sorted(FAULTS)
    total = requests.rows[-1]
    assert total[0] == "all"
    assert isinstance(total[2], int)
    assert total[2] > 30
