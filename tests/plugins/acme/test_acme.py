"""A plugin outside the tree: it loads only if it is enabled, and adds commands, options, observers and routes."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from tests.plugins.acme.process import ENVIRONMENT, PACKAGE, acme_model, charioteer, run
from tests.support.servers.server_process import ROOT, run_server

DETECTOR = ROOT / "fixtures" / "models" / "detector"
IMAGES = ROOT / "fixtures" / "images"
CONFIG = """<View><Image name="i" value="$image"/>
<RectangleLabels name="l" toName="i"><Label value="green circle"/></RectangleLabels></View>"""


def test_plugin_imports_nothing_of_charioteer_but_its_interface() -> None:
    code = "".join(file.read_text() for file in (PACKAGE / "acme").glob("*.py"))
    names = re.findall(r"^\s*(?:from|import) ((?:app|charioteer|metadata|tasks)\b\S*)", code, re.MULTILINE)
    assert {*names} == {"charioteer.plugins"}


def test_installed_plugin_is_listed_but_not_loaded() -> None:
    completed = charioteer("plugins")
    (line,) = (line for line in completed.stdout.splitlines() if "acme" in line)
    assert "not enabled" in line
    assert "--plugins acme enables it" in line


def test_unknown_command_names_the_plugins_that_are_not_enabled() -> None:
    completed = charioteer("acme-greet")
    assert completed.returncode == 2
    assert "Installed, but not enabled: acme. --plugins acme enables it" in completed.stderr


@pytest.mark.parametrize("arguments", [["--plugins", "acme", "acme-greet"], ["--plugins=acme", "acme-greet"]])
def test_option_before_the_command_enables_its_plugin(arguments: list[str]) -> None:
    completed = charioteer(*arguments, "--name", "Ada")
    assert (completed.returncode, completed.stdout) == (0, "Hello Ada\n"), completed.stderr


@pytest.mark.parametrize("plugins", [None, ""])
def test_file_enables_a_plugin_if_the_variable_is_not_set(tmp_path: Path, plugins: str | None) -> None:
    (tmp_path / "c.toml").write_text('plugins = "acme"\nacme-greeting = "Ahoy"')
    completed = charioteer("config", "--config", str(tmp_path / "c.toml"), plugins=plugins)
    assert "--acme-greeting" in completed.stdout, completed.stderr


def test_variable_enables_a_plugin_with_its_command_and_options() -> None:
    assert "acme-greet" in charioteer("--help", plugins="acme").stdout
    assert "--acme-greeting" in charioteer("serve", "--help", plugins="acme").stdout


def test_command_of_core_has_the_option_and_the_runtime_of_a_plugin(tmp_path: Path) -> None:
    completed = charioteer("--plugins", "acme", "check", str(acme_model(tmp_path)), "--acme-shout")
    assert '{"label":"CAT","score":1.0}' in completed.stdout, completed.stderr


def test_commands_that_load_models_have_the_options_and_the_loader_of_a_plugin(tmp_path: Path) -> None:
    options = ("--plugins", "acme", "predict", "--model", str(acme_model(tmp_path)), str(IMAGES / "scene.jpg"))
    completed = charioteer(*options, "--acme-language", "fr", "--json")
    assert json.loads(completed.stdout)[0]["label"] == "chat"
    acme_model(tmp_path, licence="old")
    assert charioteer(*options).stderr.endswith("the licence of Acme has expired\n")


def test_file_that_no_runtime_reads_gets_the_advice_of_a_plugin(tmp_path: Path) -> None:
    (file := tmp_path / "model.acmez").touch()
    assert f"{file} is a packed model of Acme; unpack it" in charioteer("--plugins", "acme", "check", str(file)).stdout


@pytest.mark.parametrize(("plugins", "printed"), [("acme", "Hello Ada\n"), ("", "")])
def test_name_of_an_enabled_plugin_is_imported_from_charioteer(plugins: str, printed: str) -> None:
    completed = run("-c", "from charioteer import acme_greeting; print(acme_greeting('Ada'))", plugins=plugins)
    assert completed.stdout == printed
    assert printed or "cannot import name 'acme_greeting' from 'charioteer'" in completed.stderr


def test_plugin_that_is_not_installed_is_named() -> None:
    completed = charioteer("plugins", plugins="acne")
    assert completed.returncode == 1
    assert completed.stderr == "charioteer: --plugins: no plugin 'acne' is installed; installed are: acme\n"


def test_plugin_that_raises_is_named(tmp_path: Path) -> None:
    for name, content in (
        ("METADATA", "Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n"),
        ("entry_points.txt", "[charioteer.plugins]\nbroken = broken_plugin:plugin\n"),
    ):
        file = tmp_path / "broken-1.0.dist-info" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
    (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('no licence')\n")
    completed = run("-m", "charioteer", "--plugins", "broken", "plugins", PYTHONPATH=f"{ROOT}:{tmp_path}")
    assert completed.returncode == 1
    assert completed.stderr == "charioteer: plugin broken cannot be loaded: RuntimeError: no licence\n"


def test_server_has_the_route_the_option_and_the_metric_of_a_plugin() -> None:
    options = ("--plugins", "acme", "--acme-greeting", "Ahoy", "--label-studio")
    image = base64.b64encode((IMAGES / "scene.jpg").read_bytes()).decode()
    with (
        run_server("--model", str(DETECTOR), *options, environment=ENVIRONMENT) as server,
        httpx.Client(base_url=server.address, timeout=60) as client,
    ):
        assert client.get("/acme").json() == {"greeting": "Ahoy", "models": ["detector"]}
        client.post("/v1/models/detector:predict", json={"instances": [{"b64": image}]}).raise_for_status()
        assert 'acme_requests_total{model="detector"} 1.0' in client.get("/metrics").text
        tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [image]}
        for path in ("infer", "v2/models/detector/infer"):
            for greet, expected in (("Ada", "Ahoy Ada"), (3, "greet: Expected `str | null`, got `int`")):
                body = {"inputs": [{**tensor, "parameters": {"greet": greet}}]}
                assert expected in client.post(path, json=body).text
        scene = base64.b64decode(image)
        answer = client.post("/acme/models/detector", content=scene, headers={"Content-Type": "image/jpeg"})
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert "green circle" in answer.text.splitlines()
        assert client.post("/acme/models/none", content=scene).status_code == 404
        assert "green circle" in client.get("/v1/models/detector/labels").json()
        channel: Any = grpc.insecure_channel(server.grpc_address)
        with channel:
            labels = channel.unary_unary("/inference.GRPCInferenceService/AcmeLabels")
            assert b"green circle" in labels(b"detector").splitlines()
        event = {"action": "ANNOTATION_CREATED", "task": {"id": 7}, "project": {"label_config": CONFIG}}
        answer = client.post("/label-studio/detector/webhook", json=event)
        assert answer.json()["result"] == {"kept": 7, "complete": False}
