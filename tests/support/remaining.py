"""Import and use what is left after plugins were deleted: ``python -m tests.support.remaining REMOVED TRIED``.

Both arguments are JSON lists of plugins. `app` is that of the working directory.
"""

import base64
import importlib
import json
import pkgutil
import sys
from collections.abc import Collection, Mapping
from contextlib import redirect_stdout
from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import Any

import grpc
from litestar.testing import TestClient

import app
from app.core.assembly.models import find_models
from app.core.assembly.service import Service
from app.core.cli import command_line
from app.core.plugins import registry
from app.core.proto import message_class
from app.core.settings.server import ModelOptions
from tests.support.polling import wait_until
from tests.support.removal import PLUGINS, ROOT

_IMAGES = {
    "classifier": "shape.jpg", "detector": "scene.jpg", "oriented-detector": "oriented.jpg", "segmenter": "scene.jpg",
}  # fmt: skip
"""Fixture models, one for each of Chariot's tasks that an ONNX file performs, each with an image."""


def main(removed: Collection[str], tried: Collection[str]) -> None:
    """Import core and the plugins `tried`, show the help of their commands, and send requests to a server."""
    assert Path(app.__file__).is_relative_to(Path.cwd()), "the checkout was imported instead of the copy"
    _import_all("app.core")
    loaded, skipped = registry().loaded, registry().skipped
    assert {*loaded, *skipped} == {"core", *PLUGINS} - {*removed}
    missing = {*removed, *skipped}
    assert all(any(f" requires the plugin {name}," in reason for name in missing) for reason in skipped.values())
    for name in sorted({*tried} & loaded.keys()):
        _import_all(f"app.plugins.{name}")
        for command in loaded[name].commands:
            _show_help(command.name)
    _send_requests()


def _import_all(package: str) -> None:
    """Import all modules of a package, except those that need a missing package."""
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if (error.name or "").partition(".")[0] in ("app", "metadata", "tasks"):
                    raise


def _show_help(command: str) -> None:
    with redirect_stdout(StringIO()) as text:
        command_line()([command, "--help"], exit_on_error=False, result_action="return_value")
    assert command in text.getvalue()


def _send_requests() -> None:
    """Start a server, and send requests to it over each protocol of core."""
    # Plugins have ports of their own.
    ports = [field.name for field in fields(registry().settings) if field.name.endswith("_port")]
    settings = registry().settings(**dict.fromkeys(ports, 0))
    options = ModelOptions(model_repository=ROOT / "fixtures" / "models")
    service = Service(settings, lambda: [source for source in find_models(options) if source.name in _IMAGES])
    with TestClient(service.app, base_url="http://127.0.0.1") as client:
        _wait_until_ready(client)
        for model, image in _IMAGES.items():
            data = base64.b64encode((ROOT / "fixtures" / "images" / image).read_bytes())
            tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [data.decode()]}
            for path in (f"/v2/models/m-{model}/infer", f"/v2/models/{model}/infer"):
                (output, *_) = _post(client, path, {"inputs": [tensor]})["outputs"]
                assert output["data"], (model, path)
            instances = [{"image": {"b64": data.decode()}}]
            assert _post(client, f"/v1/models/{model}:predict", {"instances": instances})["predictions"][0], model
        assert service.grpc is not None
        _call(service.grpc.port)


def _wait_until_ready(client: Any) -> None:
    wait_until(lambda: client.get("/v2/health/ready").status_code == 200)


def _post(client: Any, path: str, body: Mapping[str, object]) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, (path, response.text)
    return response.json()


def _call(port: int) -> None:
    request: Any = message_class("inference.ModelInferRequest")(model_name="detector")
    tensor = request.inputs.add(name="image", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append((ROOT / "fixtures" / "images" / "scene.jpg").read_bytes())
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        untyped: Any = channel
        infer = untyped.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        response: Any = message_class("inference.ModelInferResponse")()
        response.ParseFromString(infer(request.SerializeToString(), timeout=60))
    assert response.outputs


if __name__ == "__main__":
    main(*map(json.loads, sys.argv[1:]))
