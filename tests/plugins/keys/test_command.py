"""``charioteer keys``, run in this process."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.core.server.auth.api_keys import ApiKeys, load_keys
from app.core.settings.server import SettingsError
from app.plugins.keys.command import add, list_keys, remove


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def test_added_key_is_printed_once_and_accepted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add("camera", file=file, permissions=" infer, read,", requests_per_second=5, burst=9, days=30)
    out, err = capsys.readouterr()
    assert re.fullmatch(r"charioteer_[\w-]{43}\n", out)
    key = out.strip()
    assert err == "This is shown once. camera sends it as Authorization: Bearer <key>, or as X-API-Key\n"
    assert key not in file.read_text()
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
