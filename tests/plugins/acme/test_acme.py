"""A plugin outside the tree: it loads only if it is enabled, and adds commands, options, observers and routes."""

import base64
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.servers.server_process import ROOT, run_server

PACKAGE = Path(__file__).parent / "package"
DETECTOR = ROOT / "fixtures" / "models" / "detector"


def run(*arguments: str, plugins: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``charioteer`` in an environment where the plugin is installed."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "COLUMNS": "160"}
    if plugins is not None:
        environment["CHARIOTEER_PLUGINS"] = plugins
    command = [sys.executable, "-m", "charioteer", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_installed_plugin_is_listed_but_not_loaded() -> None:
    completed = run("plugins")
    (line,) = (line for line in completed.stdout.splitlines() if "acme" in line)
    assert "not enabled" in line
    assert "--plugins acme enables it" in line


def test_unknown_command_names_the_plugins_that_are_not_enabled() -> None:
    completed = run("acme-greet")
    assert completed.returncode == 1
    assert "Installed, but not enabled: acme. --plugins acme enables it" in completed.stderr


@pytest.mark.parametrize("arguments", [["--plugins", "acme", "acme-greet"], ["--plugins=acme", "acme-greet"]])
def test_option_before_the_command_enables_its_plugin(arguments: list[str]) -> None:
    completed = run(*arguments, "--name", "Ada")
    assert (completed.returncode, completed.stdout) == (0, "Hello Ada\n"), completed.stderr


def test_variable_enables_a_plugin_with_its_command_and_options() -> None:
    assert "acme-greet" in run("--help", plugins="acme").stdout
    assert "--acme-greeting" in run("serve", "--help", plugins="acme").stdout
    assert "--acme-greeting" not in run("serve", "--help").stdout
    assert "--acme-shout" in run("check", "--help", plugins="acme").stdout


@pytest.mark.parametrize(("option", "label"), [((), "cat"), (("--acme-shout",), "CAT")])
def test_command_of_core_has_the_option_and_the_runtime_of_a_plugin(
    tmp_path: Path, option: tuple[str, ...], label: str
) -> None:
    (tmp_path / "animals.acme").write_text("cat\ndog\n")
    (tmp_path / "model-settings.json").write_text("{}")
    completed = run("--plugins", "acme", "check", str(tmp_path), *option)
    assert f'{{"label":"{label}","score":1.0}}' in completed.stdout, completed.stderr


@pytest.mark.parametrize(("plugins", "printed"), [("acme", "Hello Ada\n"), ("", "")])
def test_name_of_an_enabled_plugin_is_imported_from_charioteer(plugins: str, printed: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "CHARIOTEER_PLUGINS": plugins}
    command = [sys.executable, "-c", "from charioteer import acme_greeting; print(acme_greeting('Ada'))"]
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert completed.stdout == printed
    assert printed or "cannot import name 'acme_greeting' from 'charioteer'" in completed.stderr


def test_plugin_that_is_not_installed_is_named() -> None:
    completed = run("plugins", plugins="acne")
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
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "charioteer", "--plugins", "broken", "plugins"]
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert completed.returncode == 1
    assert completed.stderr == "charioteer: plugin broken cannot be loaded: RuntimeError: no licence\n"


def test_server_has_the_route_the_option_and_the_metric_of_a_plugin() -> None:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    options = ("--plugins", "acme", "--acme-greeting", "Ahoy")
    image = base64.b64encode((ROOT / "fixtures" / "images" / "scene.jpg").read_bytes()).decode()
    with (
        run_server("--model", str(DETECTOR), *options, environment=environment) as server,
        httpx.Client(base_url=server.address) as client,
    ):
        assert client.get("/acme").json() == {"greeting": "Ahoy", "models": ["detector"]}
        client.post("/v1/models/detector:predict", json={"instances": [{"b64": image}]}).raise_for_status()
        assert 'acme_requests_total{model="detector"} 1.0' in client.get("/metrics").text
        tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [image]}
        for path in ("infer", "v2/models/detector/infer"):
            for greet, expected in (("Ada", "Ahoy Ada"), (3, "greet: Expected `str | null`, got `int`")):
                body = {"inputs": [{**tensor, "parameters": {"greet": greet}}]}
                assert expected in client.post(path, json=body).text
