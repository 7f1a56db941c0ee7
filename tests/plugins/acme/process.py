"""Programs and models of processes in which the plugin of Acme is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.core.runtimes.onnxruntime import graphs
from tests.support.servers.server_process import ROOT

PACKAGE = Path(__file__).parent / "package"
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/app/public_api:{PACKAGE}", "COLUMNS": "160"}
MODEL = """
from acme.parameters import AcmeParameters

class Model:
    def predict(self, image, parameters):
        name = parameters.of(AcmeParameters).greet or "-"
        return {"labels": ["none", name], "scores": [0.25, 0.75]}
"""


def run(*command: str, plugins: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the plugin installed, and enabled if `plugins` names it."""
    environment = {**ENVIRONMENT, **variables} | ({} if plugins is None else {"CHARIOTEER_PLUGINS": plugins})
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def charioteer(*arguments: str, plugins: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``charioteer``."""
    return run("-m", "charioteer", *arguments, plugins=plugins)


def python_model(folder: Path, **settings: Any) -> Path:
    """Write a Python class for the task type of the plugin, which reads its parameter."""
    (folder / "model.py").write_text(MODEL)
    content = {"implementation": "model:Model", "task_type": "ACME_COUNT", **settings}
    (folder / "model-settings.json").write_text(json.dumps(content))
    return folder


def onnx_model(folder: Path, **settings: Any) -> Path:
    """Write an ONNX model with the layout of the plugin: the scores are the means of the channels."""
    graphs.channel_means(folder / "model.onnx")
    content = {"task_type": "ACME_COUNT", "layout": "acme", "labels": ["none", "one", "two"], **settings}
    (folder / "model-settings.json").write_text(json.dumps(content))
    return folder


def detector_model(folder: Path) -> Path:
    """Write an ONNX detector with the layout of the plugin: it finds a car, and a bus with a low score."""
    rows = np.array([[[4, 4, 4, 2, 0.75, 1], [2, 2, 2, 2, 0.25, 0]]], np.float32)
    graphs.constant(folder / "model.onnx", {"acme_rows": rows})
    (folder / "model-settings.json").write_text(json.dumps({"labels": ["bus", "car"]}))
    return folder


def acme_model(folder: Path, licence: str = "valid") -> Path:
    """Write a model of the runtime of the plugin, with classes in two languages."""
    (folder / "en.acme").write_text("cat\ndog\n")
    (folder / "fr.acme").write_text("chat\nchien\n")
    (folder / "model-settings.json").write_text(json.dumps({"acme": {"licence": licence}}))
    return folder
