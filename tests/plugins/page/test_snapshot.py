"""Memory of the machine."""

from pathlib import Path

import pytest

from app.plugins.page.snapshot import machine_memory


@pytest.mark.parametrize(("content", "limit"), [("max\n", 0), ("", 0), (f"{2**62}\n", 0), ("1048576\n", 2**20)])
def test_machine_memory_is_the_smaller_of_cgroup_limit_and_physical_memory(
    tmp_path: Path, content: str, limit: int
) -> None:
    total = machine_memory(tmp_path / "none")
    (tmp_path / "memory.max").write_text(content)
    assert machine_memory(tmp_path / "memory.max") == (limit or total) <= total
