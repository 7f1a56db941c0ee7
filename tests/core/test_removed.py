"""Names that 0.2 had say what to use instead."""

import json
import re
from pathlib import Path

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core import removed
from app.core.assembly.models import describe
from app.core.cli.serve import command, unknown_variables
from app.core.removed import REMOVED
from app.core.server.http.errors import create_error_handlers
from app.core.settings.model import ModelError, read_settings
from tests.support.command_line import charioteer
from tests.support.models.model_folders import source_at, write_model

OPTIONS = sorted(name for name in REMOVED if re.fullmatch(r".* --[\w-]+", name))


@pytest.mark.parametrize("name", OPTIONS)
def test_removed_option_names_its_successor(name: str) -> None:
    completed = charioteer(*name.split(), "x")
    assert completed.returncode == 2
    assert f"{name} was removed in version 0.3: {REMOVED[name]}" in completed.stderr


@pytest.fixture
def old_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add one name of each kind, whatever the table has."""
    names = {
        "old": "use new",
        "serve --old-url": "use --new-url",
        "run --to old": "use new",
        "setting old": "use new",
        "task type OLD": "use new",
        "/v2/*/old": "use /new",
    }
    for name, advice in names.items():
        monkeypatch.setitem(removed.REMOVED, name, advice)


@pytest.mark.usefixtures("old_names")
def test_command_option_and_key_of_a_file_name_their_successors(tmp_path: Path) -> None:
    (file := tmp_path / "options.toml").write_text("old_url = 1")
    assert "old was removed in version 0.3: use new\n" in charioteer("old").stderr
    for words in (("--to", "old"), ("--to=old",)):
        assert charioteer("run", "x", *words).stderr == "charioteer: run --to old was removed in version 0.3: use new\n"
    sentence = "serve --old-url was removed in version 0.3: use --new-url\n"
    assert sentence in charioteer("serve", "--old-url=1").stderr
    assert sentence in charioteer("serve", "--config", file).stderr


@pytest.mark.usefixtures("old_names")
def test_variable_names_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHARIOTEER_OLD_URL", "1")
    found = list(unknown_variables(command.assemble_argument_collection()))
    assert found == [("CHARIOTEER_OLD_URL", "serve --old-url was removed in version 0.3: use --new-url")]


@pytest.mark.usefixtures("old_names")
@pytest.mark.parametrize(("setting", "name"), [({"old": 1}, "setting old"), ({"task_type": "OLD"}, "task type OLD")])
def test_setting_of_a_model_names_its_successor(tmp_path: Path, setting: dict[str, object], name: str) -> None:
    (tmp_path / "model-settings.json").write_text(json.dumps(setting))
    with pytest.raises(ModelError, match=rf"; the {name} was removed in version 0\.3: use new$"):
        read_settings(tmp_path)


@pytest.mark.usefixtures("old_names")
def test_task_type_of_a_class_names_its_successor(tmp_path: Path) -> None:
    code = "class Model:\n    task_type = 'OLD'\n\n    def predict(self, text): ...\n"
    with pytest.raises(ModelError, match=r"the task type OLD was removed in version 0\.3: use new$"):
        describe(source_at(write_model(tmp_path, code, task_type=None)))


@pytest.mark.usefixtures("old_names")
def test_path_names_its_successor() -> None:
    with TestClient(Litestar(exception_handlers=create_error_handlers())) as client:
        answers = [client.get(path) for path in ("/v2/models/x/old", "/v2/models/x/young")]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].json() == {"error": "/v2/models/x/old was removed in version 0.3: use /new"}
    assert answers[1].json() == {"error": "Nothing is served at /v2/models/x/young"}
