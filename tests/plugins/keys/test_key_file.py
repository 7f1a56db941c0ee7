"""Changing a file of keys."""

import stat
import threading
from pathlib import Path

import pytest

from app.core.server.auth.api_keys import ApiKey, ApiKeys, load_keys
from app.core.settings.server import SettingsError
from app.plugins.keys.key_file import add_key, new_key, remove_key


def key_named(name: str) -> ApiKey:
    return ApiKey(name=name, sha256="0" * 64, permissions=("infer",))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_added_key_is_stored_as_a_digest_in_a_private_file(tmp_path: Path) -> None:
    path, key = tmp_path / "keys.json", new_key()
    add_key(path, key, key_named("camera"))
    add_key(path, "another", key_named("screen"))
    assert key not in path.read_text()
    assert ApiKeys(load_keys(path)).identify(key).name == "camera"
    assert [key.name for key in load_keys(path)] == ["camera", "screen"]
    assert mode_of(path) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["keys.json"]


def test_a_key_is_removed_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    for name in ("camera", "screen"):
        add_key(path, name, key_named(name))
    remove_key(path, "camera")
    assert [key.name for key in load_keys(path)] == ["screen"]
    with pytest.raises(SettingsError, match=r"has no key called camera; it has screen$"):
        remove_key(path, "camera")
    remove_key(path, "screen")
    with pytest.raises(SettingsError, match=r"it has none$"):
        remove_key(path, "screen")


def test_added_key_keeps_read_mode_but_removes_write_mode_for_others(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text("[]")
    path.chmod(0o666)
    add_key(path, "a", key_named("a"))
    assert mode_of(path) == 0o644


def test_symlink_to_the_key_file_stays_a_symlink(tmp_path: Path) -> None:
    target, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(target)
    add_key(link, "a", key_named("a"))
    assert link.is_symlink()
    assert [key.name for key in load_keys(target)] == ["a"]


def test_duplicate_key_name_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    add_key(path, "a", key_named("a"))
    before = path.read_bytes()
    with pytest.raises(SettingsError, match="has a key called a; remove it first"):
        add_key(path, "b", key_named("a"))
    assert path.read_bytes() == before


def test_file_that_is_not_a_key_list_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text("{}")
    with pytest.raises(SettingsError, match=r"keys\.json: Expected a JSON list of keys"):
        add_key(path, "a", key_named("a"))
    assert path.read_text() == "{}"
    assert [file.name for file in tmp_path.iterdir()] == ["keys.json"]


def test_missing_folder_raises_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be written: No such file"):
        add_key(tmp_path / "none" / "keys.json", "a", key_named("a"))


def test_concurrent_additions_are_all_stored(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"

    def add(number: int) -> None:
        for turn in range(5):
            add_key(path, f"{number}-{turn}", key_named(f"k{number}-{turn}"))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(load_keys(path)) == 20
