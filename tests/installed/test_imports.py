"""Check which modules import with the base dependencies, and which package the others miss."""

import json
import subprocess
from collections.abc import Mapping

from tests.installed.environments import linked_environment
from tests.support.servers.server_process import ROOT

MISSING_PACKAGE: Mapping[str, str] = {
    "app.plugins.bulk_run.job": "pyarrow",
    "app.plugins.bulk_run.parts": "pyarrow",
    "app.plugins.bulk_run.ray_job": "pyarrow",
    "app.plugins.bulk_run.ray_worker": "pyarrow",
    "app.plugins.ray.ingress": "ray",
    "app.plugins.ray.remote": "ray",
    "app.plugins.ray.replica": "ray",
    "app.plugins.observability.tracing": "opentelemetry",
    "app.plugins.recording.export.parquet": "pyarrow",
    "app.plugins.access.jwt.validator": "jwt",
}
"""The missing package of each module that needs an extra; all others import."""

_WALK = """
import importlib, json, pkgutil
found, pending = {}, ["app", "metadata", "tasks"]
while pending:
    name = pending.pop()
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        found[name] = error.name or str(error)
        continue
    found[name] = None
    inner = pkgutil.iter_modules(getattr(module, "__path__", ()), name + ".")
    pending += [each.name for each in inner if not each.name.endswith(".__main__")]
print(json.dumps(found))
"""


def test_modules_import_with_the_base_dependencies() -> None:
    process = subprocess.run(
        [linked_environment().python, "-c", _WALK], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
    missing: dict[str, str | None] = json.loads(process.stdout)
    assert {"app.plugins.recording.command", "app.plugins.recording.query.connection", "tasks.task"} <= missing.keys()
    assert {name: package for name, package in missing.items() if package is not None} == MISSING_PACKAGE
