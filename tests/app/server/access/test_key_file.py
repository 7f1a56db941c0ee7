"""Changing a file of keys."""

import stat
import threading
from pathlib import Path

import pytest

from app.server.access.key_file import add_key, keys_of, new_key, remove_key
from app.server.access.keys import Key, Keys
from app.settings.server import SettingsError


def described(name: str) -> Key:
    return Key(name=name, sha256="0" * 64, permissions=("infer",))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_keys_are_random_and_can_be_told_from_anything_else() -> None:
    made = {new_key() for _ in range(100)}
    assert len(made) == 100
    assert all(each.startswith("charioteer_") and len(each) == len("charioteer_") + 43 for each in made)


def test_a_key_is_added_by_its_digest_for_nobody_else_to_read(tmp_path: Path) -> None:
    path, key = tmp_path / "keys.json", new_key()
    add_key(path, key, described("camera"))
    add_key(path, "another", described("screen"))
    assert key not in path.read_text()
    assert Keys(keys_of(path)).identify(key).name == "camera"
    assert [each.name for each in keys_of(path)] == ["camera", "screen"]
    assert mode_of(path) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["keys.json"]


def test_a_key_is_removed_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    for name in ("camera", "screen"):
        add_key(path, name, described(name))
    remove_key(path, "camera")
    assert [each.name for each in keys_of(path)] == ["screen"]
    with pytest.raises(SettingsError, match=r"has no key called camera; it has screen$"):
        remove_key(path, "camera")
    remove_key(path, "screen")
    with pytest.raises(SettingsError, match=r"it has none$"):
        remove_key(path, "screen")


def test_who_could_read_it_still_can_and_who_could_write_it_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text("[]")
    path.chmod(0o666)
    add_key(path, "a", described("a"))
    assert mode_of(path) == 0o644


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    add_key(link, "a", described("a"))
    assert link.is_symlink()
    assert [each.name for each in keys_of(real)] == ["a"]


def test_a_name_is_given_once(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    add_key(path, "a", described("a"))
    before = path.read_bytes()
    with pytest.raises(SettingsError, match="has a key called a; remove it first"):
        add_key(path, "b", described("a"))
    assert path.read_bytes() == before


def test_what_is_no_file_of_keys_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text("{}")
    with pytest.raises(SettingsError, match=r"keys\.json: Expected a JSON list of keys"):
        add_key(path, "a", described("a"))
    assert path.read_text() == "{}"
    assert [each.name for each in tmp_path.iterdir()] == ["keys.json"]


def test_a_folder_that_is_not_there_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be written: No such file"):
        add_key(tmp_path / "none" / "keys.json", "a", described("a"))
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        keys_of(tmp_path / "keys.json")


def test_those_who_add_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"

    def add(number: int) -> None:
        for turn in range(5):
            add_key(path, f"{number}-{turn}", described(f"k{number}-{turn}"))

    threads = [threading.Thread(target=add, args=(each,)) for each in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert len(keys_of(path)) == 20
