"""Install what an image has, with and without transformers, and print its facts: ``make image-facts``.

The sizes are those of the folder that deploy/install.sh fills; the base image with Python comes on top. Each folder
serves one request of each image task before its start and memory are measured.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx

from tests.benchmarks.serving.processes import family_of, memory_of
from tests.platform.proxy import MODELS
from tests.support.servers.server_process import ROOT, run_server

_STARTS = 5
_PARTS = 12
"""The number of the largest packages to print."""
_FIXTURES = ROOT / "fixtures"


def main() -> None:
    """Print one line for each fact, and the largest packages of the image without transformers."""
    with tempfile.TemporaryDirectory() as name:
        for transformers in ("yes", "no"):
            prefix = Path(name, transformers)
            print(f"{'with' if transformers == 'yes' else 'without'} transformers: {describe(prefix, transformers)}")
        print(f"pip-audit: {audit()}")
        print("\n| package | MB |\n| --- | --- |")
        for package, size in package_sizes(next(prefix.glob("lib/*/site-packages"))).most_common(_PARTS):
            print(f"| {package} | {size / 1e6:.0f} |")


def describe(prefix: Path, transformers: str) -> str:
    """Install into `prefix`, and return its size, its number of packages, and the start and memory of its server."""
    environment = {**os.environ, "PYTHON": sys.executable, "TRANSFORMERS": transformers}
    installation = ["sh", "deploy/install.sh", prefix]
    size = subprocess.run(installation, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    bill = json.loads((prefix / "share/charioteer/sbom.cdx.json").read_text())
    send_one_request_a_task(prefix, [model for model in MODELS if model != "vlm" or transformers == "yes"])
    seconds, megabytes = measure_start(prefix)
    start = f"a server of one model is ready in {seconds:.1f} s and needs {megabytes:.0f} MB of memory"
    return f"{size.strip()}, {len(bill['components'])} packages; {start}"


def send_one_request_a_task(prefix: Path, models: list[str]) -> None:
    """Serve the fixture models from `prefix`; raise HTTPStatusError if one does not answer."""
    folder = _FIXTURES / "models"
    with run_server("--model-repository", str(folder), program=(str(prefix / "bin" / "charioteer"),)) as server:
        for model in models:
            content = (_FIXTURES / "images" / MODELS[model][1]).read_bytes()
            address = f"{server.address}/v1/models/{model}:predict"
            response = httpx.post(address, content=content, headers={"Content-Type": "image/jpeg"}, timeout=60)
            response.raise_for_status()
            assert response.json()["predictions"]


def measure_start(prefix: Path) -> tuple[float, float]:
    """Return the median seconds until the detector is ready, and the resident megabytes of the processes then."""
    program, seconds, megabytes = (str(prefix / "bin" / "charioteer"),), list[float](), list[float]()
    for _ in range(_STARTS):
        start = time.perf_counter()
        with run_server("--model", str(_FIXTURES / "models" / "detector"), program=program) as server:
            assert server.address
            seconds.append(time.perf_counter() - start)
            megabytes.append(memory_of(family_of(server.process.pid))[0])
    return statistics.median(seconds), statistics.median(megabytes)


def audit() -> str:
    """Return which packages of the lock have known vulnerabilities."""
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--progress-spinner", "off"]
    command += ["--format", "json", "--requirement", "deploy/requirements/base.txt"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if not process.stdout:
        return f"no result, {process.stderr.strip().splitlines()[-1]}"
    packages = json.loads(process.stdout)["dependencies"]
    found = ", ".join(package["name"] for package in packages if package.get("vulns"))
    return f"known vulnerabilities of the {len(packages)} packages in the lock: {found or 'none'}"


def package_sizes(site: Path) -> Counter[str]:
    """Return the bytes below each folder of `site`; the libraries of a wheel count for the package of their name."""
    sizes: Counter[str] = Counter()
    for file in filter(Path.is_file, site.rglob("*")):
        name = file.relative_to(site).parts[0].removesuffix(".libs")
        sizes["cv2" if name == "opencv_python_headless" else "PIL" if name == "pillow" else name] += file.stat().st_size
    return sizes


if __name__ == "__main__":
    main()
