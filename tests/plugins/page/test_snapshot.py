"""Memory of the machine."""

from pathlib import Path

import pytest

from app.plugins.page.snapshot import machine_memory


@pytest.mark.parametrize("content", ["max\n", "", f"{2**62}\n"])
def test_machine_memory_without_a_smaller_cgroup_limit_is_the_physical_memory(tmp_path: Path, content: str) -> None:
    total = machine_memory(tmp_path / "none")
    (tmp_path / "memory.max").write_text(content)
    assert machine_memory(tmp_path / "memory.max") == total > 2**20


def test_machine_memory_is_the_cgroup_limit(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1048576\n")
    assert machine_memory(tmp_path / "memory.max") == 2**20
