"""A plugin outside the tree: it loads only if enabled, adds to commands, routes and models, and is the page's code."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from app.core.hooks import Parts, Plugin
from app.core.plugins import registry
from tests.plugins.acme.process import (
    ENVIRONMENT,
    PACKAGE,
    acme_model,
    charioteer,
    detector_model,
    onnx_model,
    python_model,
    run,
)
from tests.support.servers.server_process import ROOT, run_server

DETECTOR = ROOT / "fixtures" / "models" / "detector"
IMAGES = ROOT / "fixtures" / "images"


def test_plugin_imports_nothing_of_charioteer_but_its_interface() -> None:
    code = "".join(file.read_text() for file in (PACKAGE / "acme").glob("*.py"))
    names = re.findall(r"^\s*(?:from|import) ((?:app|charioteer|metadata|tasks)\b\S*)", code, re.MULTILINE)
    assert {*names} == {"charioteer.plugins"}


def test_interface_lists_what_it_has_with_the_types_of_every_image_task() -> None:
    program = """
import charioteer.plugins as plugins
print([name for name in dir(plugins) if not hasattr(plugins, name)])
tasks = ("ImageClassification", "ObjectDetection", "OrientedObjectDetection", "ImageSegmentation", "ImageTextToText")
predictions = ("Classification", "Detections", "OrientedDetections", "Segments", "Answers")
inputs = ("ClassificationInput", "DetectionInput", "SegmentationInput", "PromptedImage")
print({*tasks, *predictions, *inputs} - {*dir(plugins)})
"""
    assert run("-c", program).stdout == "[]\nset()\n"


def test_installed_plugin_is_listed_but_not_loaded() -> None:
    completed = charioteer("plugins")
    (line,) = (line for line in completed.stdout.splitlines() if "acme" in line)
    assert "not enabled" in line
    assert "--plugins acme enables it" in line


def test_unknown_command_names_the_plugins_that_are_not_enabled() -> None:
    completed = charioteer("acme-greet")
    assert completed.returncode == 2
    assert "The plugin acme is not loaded: --plugins acme enables it" in completed.stderr


@pytest.mark.parametrize("arguments", [["--plugins", "acme", "acme-greet"], ["--plugins=acme", "acme-greet"]])
def test_option_before_the_command_enables_its_plugin(arguments: list[str]) -> None:
    completed = charioteer(*arguments, "--name", "Ada")
    assert (completed.returncode, completed.stdout) == (0, "Hello Ada\n"), completed.stderr


@pytest.mark.slow
@pytest.mark.parametrize("plugins", [None, ""])
def test_file_enables_a_plugin_if_the_variable_is_not_set(tmp_path: Path, plugins: str | None) -> None:
    (file := tmp_path / "c.toml").write_text('plugins = "acme"')
    completed = run("-m", "charioteer", "acme-greet", plugins=plugins, CHARIOTEER_CONFIG=str(file))
    assert completed.stdout == "Hello world\n", completed.stderr


@pytest.mark.slow
def test_variable_enables_a_plugin_with_its_command_and_options() -> None:
    assert "acme-greet" in charioteer("--help", plugins="acme").stdout
    assert "--acme-greeting" in charioteer("serve", "--help", plugins="acme").stdout


@pytest.mark.slow
def test_commands_that_load_models_have_the_options_and_the_loader_of_a_plugin(tmp_path: Path) -> None:
    options = ("--plugins", "acme", "predict", "--model", str(acme_model(tmp_path)), str(IMAGES / "scene.jpg"))
    completed = charioteer(*options, "--acme-language", "fr", "--json")
    assert json.loads(completed.stdout)[0]["label"] == "chat"
    acme_model(tmp_path, licence="old")
    assert charioteer(*options).stderr.endswith("the licence of Acme has expired\n")


@pytest.mark.slow
def test_file_that_no_runtime_reads_gets_the_advice_of_a_plugin(tmp_path: Path) -> None:
    (file := tmp_path / "model.acmez").touch()
    assert f"{file} is a packed model of Acme; unpack it" in charioteer("--plugins", "acme", "check", str(file)).stdout


@pytest.mark.slow
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
    options = ("--plugins", "acme", "--acme-greeting", "Ahoy")
    image = base64.b64encode((IMAGES / "scene.jpg").read_bytes()).decode()
    with (
        run_server("--model", str(DETECTOR), *options, environment=ENVIRONMENT) as server,
        httpx.Client(base_url=server.address, timeout=60) as client,
    ):
        assert client.get("/acme").json() == {"greeting": "Ahoy", "models": ["acme/detector", "acme/detector@tensors"]}
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
        assert "acme/detector" in [model["id"] for model in client.get("/v1/models").json()["data"]]


PROGRAM = """
import json, sys
import numpy as np
from charioteer import InferenceError, InProcessModel, ModelError

for folder, requests in json.loads(sys.argv[1]):
    try:
        model = InProcessModel(folder, allow_code=True)
    except ModelError as error:
        sys.exit(str(error))
    answers = [model.description.task_type]
    for parameters in requests:
        try:
            record = model.ask(np.full((8, 8, 3), 255, np.uint8), **parameters)[0]
            answers.append([record.label, record.score])
        except InferenceError as error:
            answers.append(str(error))
    print(json.dumps(answers))
"""


@pytest.mark.parametrize("isolate", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_class_and_layouts_answer_the_task_type_and_read_the_parameter(tmp_path: Path, isolate: bool) -> None:
    """Load all models in one process, which takes a second to start."""
    for name in ("code", "graph", "detector"):
        (tmp_path / name).mkdir()
    code = python_model(tmp_path / "code", isolate=isolate, parameters={"greet": "all"})
    graph, detector = onnx_model(tmp_path / "graph", isolate=isolate), detector_model(tmp_path / "detector")
    asked = [(code, [{}, *({"greet": name} for name in ("Ada", 3, "")), {"great": "a"}]), (graph, [{}])]
    asked.append((detector, [{"score_threshold": 0.5}]))
    completed = run("-c", PROGRAM, json.dumps(asked, default=str), plugins="acme")
    assert completed.returncode == 0, completed.stderr
    (task_type, *given, wrong_type, empty, unknown), of_graph, of_detector = map(
        json.loads, completed.stdout.splitlines()
    )
    assert (task_type, given) == ("ACME_COUNT", [["all", 0.75], ["Ada", 0.75]])
    assert wrong_type == "inputs[0].parameters.greet: Expected `str | null`, got `int`"
    assert empty == "inputs[0].parameters.greet: Expected `str` of length >= 1"
    assert "one of action, score_threshold, top_k, labels, candidate_labels, greet" in unknown
    assert [of_graph[0], of_graph[1][0]] == ["ACME_COUNT", "none"]
    assert of_detector == ["OBJECT_DETECTION", ["car", 0.75]]


def test_task_type_of_a_plugin_that_is_not_enabled_is_rejected(tmp_path: Path) -> None:
    completed = run("-c", PROGRAM, json.dumps([[str(python_model(tmp_path)), []]]), plugins="")
    assert "task_type: Invalid task type 'ACME_COUNT'; known are IMAGE_CLASSIFICATION" in completed.stderr
    assert "; plugins that are not loaded: acme (--plugins acme enables it)" in completed.stderr


PAGE = (ROOT / "docs" / "plugins.md").read_text()
CODE = "".join(file.read_text() for file in (PACKAGE / "acme").rglob("*.*") if file.suffix in (".py", ".js"))
HOOKS = {*Plugin.__struct_fields__} - {"api", "name", "summary", "requires", "extra"}


@pytest.mark.parametrize("block", re.findall(r"^```(?:python|js)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
def test_every_example_is_code_of_the_tested_plugin(block: str) -> None:
    assert block in CODE


def test_every_hook_is_listed_and_those_with_a_link_have_an_example() -> None:
    table = PAGE[PAGE.index("## Hooks") : PAGE.index("### options")]
    listed = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE)))
    assert {*listed} == HOOKS
    rows = re.findall(r"^\| \[`(\w+)`\]\(#(\w+)\)", PAGE, re.MULTILINE)
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
    assert [anchor for _, anchor in rows if "\n```" not in sections.get(anchor, "")] == []


def test_every_part_of_a_server_is_listed() -> None:
    table = PAGE[PAGE.index("### start") : PAGE.index("### provide")]
    rows = "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
    assert {*Parts.__struct_fields__} == {*re.findall(r"`(\w+)`", rows)}


def test_examples_name_built_in_plugins() -> None:
    names = re.findall(r"\| `(\w+)` \|$", PAGE, re.MULTILINE)
    assert len(names) > 10
    assert {*names} <= registry().loaded.keys()
