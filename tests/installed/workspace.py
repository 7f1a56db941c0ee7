"""Create a folder that looks like a checkout to the commands of README.md, and run processes in it."""

import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import cv2
import httpx
import numpy as np

from tests.installed.environments import Environment
from tests.support.data.chariot import image_input
from tests.support.data.datasets import coco_annotation, write_coco_dataset
from tests.support.data.images import encode_base64
from tests.support.servers.certificate_authority import CertificateAuthority
from tests.support.servers.server_process import ROOT

_ANNOUNCED = re.compile(r'"address":"(https?://[^"]+)"')
_TIMEOUT_SECONDS = 600
_RECORDED_IMAGES = 32
"""Images to record; drift detection needs at least 30."""


class Workspace:
    """A folder with the files that README.md names: an environment, models, a dataset, a certificate.

    Args:
        folder: an empty one.
        environment: becomes its ``.venv``.
    """

    def __init__(self, folder: Path, environment: Environment) -> None:
        self.folder = folder
        self.key = ""
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CHARIOTEER_"))},
            "CHARIOTEER_HTTP_PORT": "0",
            "CHARIOTEER_GRPC_PORT": "0",
            "CHARIOTEER_TENSORFLOW_SERVING_PORT": "0",
            "CHARIOTEER_TENSORFLOW_GRPC_PORT": "0",
            "COLUMNS": "200",
            "PATH": f"{folder / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }
        for name in ("fixtures", "Makefile", "pyproject.toml"):
            (folder / name).symlink_to(ROOT / name)
        self.use(environment)
        shutil.copy(ROOT / "fixtures" / "images" / "scene.jpg", folder / "image.jpg")
        models = folder / "path" / "to" / "models"
        shutil.copytree(ROOT / "fixtures" / "models" / "detector", models / "detector")
        shutil.copytree(models / "detector", models.with_name("model"))
        (onnx,) = (models / "detector").glob("*.onnx")
        shutil.copy(onnx, models.with_name("model.onnx"))
        write_coco_dataset(models.with_name("dataset"), [coco_annotation()])
        self.authority = CertificateAuthority(folder)
        for file, name in zip(self.authority.issue("server"), ("server.pem", "server.key"), strict=True):
            shutil.copy(file, folder / name)

    def use(self, environment: Environment) -> None:
        """Replace ``.venv`` by another environment."""
        link = self.folder / ".venv"
        link.unlink(missing_ok=True)
        link.symlink_to(environment.folder)

    def run(self, command: str) -> "subprocess.CompletedProcess[str]":
        """Run a shell command, and wait until it exits."""
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
        )

    @contextmanager
    def serving(self, command: str) -> Generator[str]:
        """Run a command that serves, and yield its address once it is ready; stop it at the end."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        assert process.stdout is not None
        log: list[str] = []
        match = None
        for line in process.stdout:
            log.append(line)
            if match := _ANNOUNCED.search(line):
                break
        # A thread reads the rest, so that the pipe never fills.
        reader = threading.Thread(target=log.extend, args=(process.stdout,))
        reader.start()
        try:
            assert match, "".join([command, *log])
            yield match[1].replace("0.0.0.0", "localhost")
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(_TIMEOUT_SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            reader.join()
            process.stdout.close()
        assert "Traceback" not in "".join(log), "".join([command, *log])

    def try_server(self, command: str, address: str) -> None:
        """Send images to a server, with TLS and API key as its options require."""
        words = shlex.split(command, comments=True)
        context: ssl.SSLContext | bool = self.authority.context() if "--tls-cert" in words else True
        headers = {"Authorization": f"Bearer {self.key}"} if "--api-keys" in words else {}
        with httpx.Client(base_url=address, headers=headers, verify=context, timeout=60, trust_env=False) as client:
            name = "model" if "path/to/model.onnx" in words else "detector"
            for number in range(_RECORDED_IMAGES if "--record" in words else 1):
                response = client.post(f"/v2/models/m-{name}/infer", json=inference_request(number))
                assert response.status_code == 200, f"{command}\n{response.text}"
            if "--record" in words:
                inferences = client.get("/inferences", params={"limit": 5})
                assert inferences.status_code == 200, inferences.text
                assert len(inferences.json()["inferences"]) == 5
            if headers:
                assert httpx.get(f"{address}/inferences", verify=context, trust_env=False, timeout=60).status_code in (
                    401,
                    404,
                )


def inference_request(number: int) -> Mapping[str, object]:
    """Return a request with the scene at a different brightness for each number."""
    pixels = cv2.imread(str(ROOT / "fixtures" / "images" / "scene.jpg"))
    assert pixels is not None
    changed = np.clip(pixels.astype(np.int16) + number - _RECORDED_IMAGES // 2, 0, 255).astype(np.uint8)
    metadata = [{"key": "camera", "type": "str", "value": "north"}]
    return {"inputs": [image_input(encode_base64(cv2.imencode(".jpg", changed)[1].tobytes()), metadata=metadata)]}
