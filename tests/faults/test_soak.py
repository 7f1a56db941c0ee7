"""Run the soak test for a few seconds."""

import pytest

from tests.soak import run


@pytest.mark.slow
def test_server_answers_correctly_during_faults() -> None:
    kinds = ["model unloaded and loaded", "eight times the load", "SIGKILL and restart"]
    # On a busy machine, the process of a model takes long to start.
    soak, failures = run(0, 5, kinds, recovery_seconds=120)
    assert list(failures) == []
    assert sorted(window.kind for window in soak.windows) == sorted(kinds)
    assert len({entry.surface for entry in soak.entries if entry.status == 200}) == 6
