"""A file that is reloaded after a change."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.server.auth.watched_file import WatchedFile
from app.core.settings.server import SettingsError
from tests.core.server.auth.test_rate_limiter import Clock


def number_in(content: bytes) -> int:
    try:
        return int(content)
    except ValueError:
        raise SettingsError("Expected a number") from None


def replace(path: Path, content: str) -> None:
    new_file = path.with_suffix(".new")
    new_file.write_text(content)
    new_file.replace(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "number"
    file.write_text("1")
    return file


def test_change_is_read_at_the_next_check(path: Path) -> None:
    clock = Clock()
    watched = WatchedFile(path, number_in, "--number", clock=clock)
    replace(path, "2")
    assert watched.value == 1
    clock.now += 0.999
    assert watched.value == 1
    clock.now += 0.001
    assert watched.value == 2


def damage_content(path: Path) -> None:
    replace(path, "half of a numb")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_content, "number: Expected a number"),
        (Path.unlink, "number cannot be read: No such file or directory"),
    ],
    ids=["invalid", "missing"],
)
def test_unusable_file_keeps_the_old_value_until_it_is_back_and_is_logged_once(
    path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], object], reason: str
) -> None:
    clock = Clock()
    watched = WatchedFile(path, number_in, "--number", clock=clock)
    damage(path)
    for _ in range(3):
        clock.now += 1
        assert watched.value == 1
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.message for record in errors] == ["credentials not reloaded"]
    assert errors[0].__dict__["reason"].endswith(reason)
    replace(path, "3")
    clock.now += 1
    assert watched.value == 3


def test_replaced_symlink_is_a_change(tmp_path: Path) -> None:
    """Replace a symlink, as Kubernetes does to update a secret."""
    for number in ("1", "2"):
        (tmp_path / number).mkdir()
        (tmp_path / number / "number").write_text(number)
        os.utime(tmp_path / number / "number", (1, 1))
    link = tmp_path / "data"
    link.symlink_to("1")
    clock = Clock()
    watched = WatchedFile(link / "number", number_in, "--number", clock=clock)
    (tmp_path / "new").symlink_to("2")
    (tmp_path / "new").replace(link)
    clock.now += 1
    assert watched.value == 2


def test_file_writable_by_others_logs_a_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.chmod(0o644)
    WatchedFile(path, number_in, "--number")
    assert not caplog.records
    path.chmod(0o664)
    WatchedFile(path, number_in, "--number")
    assert [record.message for record in caplog.records] == ["key file is writable by other users"]


def test_unreadable_file_at_the_start_raises_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--number: .*none cannot be read: No such file or directory$"):
        WatchedFile(tmp_path / "none", number_in, "--number")
    with pytest.raises(SettingsError, match=r"cannot be read: Is a directory$"):
        WatchedFile(tmp_path, number_in, "--number")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SettingsError, match=r"cannot be read: it is not a file$"):
        WatchedFile(tmp_path / "pipe", number_in, "--number")


def test_file_that_is_not_utf8_raises_settings_error(path: Path) -> None:
    path.write_bytes(b"\xff")
    with pytest.raises(SettingsError, match=r"^--text: .*number: Expected text in UTF-8$"):
        WatchedFile(path, bytes.decode, "--text")
