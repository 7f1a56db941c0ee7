"""``charioteer keys``, run in this process, and changes of its file."""

import json
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.core.server.auth.api_keys import ApiKey, ApiKeys, read_keys
from app.core.server.auth.watched_file import read_file
from app.core.settings.server import SettingsError
from app.plugins.access.keys.command import add, list_keys, remove
from app.plugins.access.keys.key_file import add_key, remove_key

load_keys = partial(read_file, parse=read_keys)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def test_added_key_is_printed_once_and_its_digest_is_in_a_private_file(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add("camera", file=file, permissions=" infer, read,", requests_per_second=5, burst=9, days=30)
    out, err = capsys.readouterr()
    assert re.fullmatch(r"charioteer_[\w-]{43}\n", out)
    key = out.strip()
    assert err == "This is shown once. camera sends it as Authorization: Bearer <key>, or as X-API-Key\n"
    assert key not in file.read_text()
    assert mode_of(file) == 0o600
    assert [*file.parent.iterdir()] == [file]
    identity = ApiKeys(load_keys(file)).identify(key)
    assert (identity.name, identity.permissions) == ("camera", {"infer", "read"})
    (entry,) = load_keys(file)
    assert (entry.requests_per_second, entry.burst) == (5, 9)
    assert entry.not_after is not None
    assert timedelta(days=29) < entry.not_after - datetime.now(UTC) < timedelta(days=31)


def test_key_has_only_the_infer_permission_by_default(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add("camera", file=file)
    assert json.loads(file.read_text())[0]["permissions"] == ["infer"]
    capsys.readouterr()
    list_keys(file=file)
    output, digest = capsys.readouterr().out, json.loads(file.read_text())[0]["sha256"]
    assert "camera" in output
    assert digest[:12] in output
    assert digest not in output
    remove("camera", file=file)
    assert load_keys(file) == []


def test_expired_key_is_listed_as_expired(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add("camera", file=file, days=1)
    entries = json.loads(file.read_text())
    file.write_text(json.dumps([{**entries[0], "not_after": "2020-01-01T00:00:00Z"}]))
    list_keys(file=file)
    assert "2020-01-01T00:00:00+00:00 (expired)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("two words", {}, "Expected a name of letters, digits, dots, dashes and underscores, 64 at most, got 'two wo"),
        ("a" * 65, {}, "Expected a name of letters"),
        ("a", {"permissions": "root"}, "--permissions: expected infer, read, label or admin, separated by commas, got"),
        ("a", {"permissions": ","}, "--permissions: expected infer, read, label or admin"),
        ("a", {"permissions": "open"}, "a: expected infer, read, label or admin, got open"),
        ("a", {"burst": 2}, "a: burst needs requests_per_second"),
        ("a", {"requests_per_second": 1e9}, "--requests-per-second: Expected `float` <= 1000000.0"),
    ],
)
def test_invalid_key_arguments_are_rejected(
    file: Path, capsys: pytest.CaptureFixture[str], name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        add(name, file=file, **options)
    assert message in str(caught.value)
    assert capsys.readouterr().out == ""
    assert not file.exists()


def add_named(path: Path, name: str) -> None:
    add_key(path, f"key of {name}", ApiKey(name=name, sha256="0" * 64, permissions=("infer",)))


def names(path: Path) -> list[str]:
    return [key.name for key in load_keys(path)]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_key_is_removed_by_its_name(file: Path) -> None:
    with pytest.raises(SettingsError, match=r"There is no file .*keys"):
        remove_key(file, "camera")
    for name in ("camera", "screen"):
        add_named(file, name)
    assert names(file) == ["camera", "screen"]
    remove_key(file, "camera")
    assert names(file) == ["screen"]
    with pytest.raises(SettingsError, match=r"has no key called camera; it has screen$"):
        remove_key(file, "camera")
    remove_key(file, "screen")
    with pytest.raises(SettingsError, match=r"it has none$"):
        remove_key(file, "screen")


def test_added_key_keeps_read_mode_but_removes_write_mode_for_others(file: Path) -> None:
    file.write_text("[]")
    file.chmod(0o666)
    add_named(file, "a")
    assert mode_of(file) == 0o644


def test_symlink_to_the_key_file_stays_a_symlink(file: Path) -> None:
    file.symlink_to(target := file.with_name("real.json"))
    add_named(file, "a")
    assert file.is_symlink()
    assert names(target) == ["a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '[{"name": "a", "sha256": "%s", "permissions": ["infer"]}]' % ("0" * 64),
            "has a key called a; remove it first",
        ),
        ("{}", r"keys\.json: Expected a JSON list of keys"),
    ],
)
def test_file_that_a_key_cannot_be_added_to_is_not_changed(file: Path, content: str, message: str) -> None:
    file.write_text(content)
    with pytest.raises(SettingsError, match=message):
        add_named(file, "a")
    assert file.read_text() == content
    assert [*file.parent.iterdir()] == [file]


def test_missing_folder_raises_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be written: No such file"):
        add_named(tmp_path / "none" / "keys.json", "a")


def test_concurrent_additions_are_all_stored(file: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add_named, [file] * 20, [f"k{number}" for number in range(20)]))
    assert len(load_keys(file)) == 20
