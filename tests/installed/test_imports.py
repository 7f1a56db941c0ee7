"""Which modules import with the base dependencies alone, and which extra the others need."""

import json
import subprocess
from collections.abc import Mapping

from tests.installed.environments import linked
from tests.support.server_process import ROOT

NEEDING: Mapping[str, str] = {
    "app.assembly.ray_serve.application": "ray",
    "app.assembly.ray_serve.ingress": "ray",
    "app.assembly.ray_serve.remote": "ray",
    "app.assembly.ray_serve.replica": "ray",
    "app.observers.tracing": "opentelemetry",
    "app.recording.export.parquet": "pyarrow",
    "app.recording.postgres_store": "asyncpg",
    "app.server.access.tokens": "jwt",
    # These are for pytest, which imports them.
    "app.conformance.pytest_plugin": "pytest",
    "charioteer_pytest": "pytest",
}
"""The package that each module lacks which needs an extra; all others import."""

_WALK = """
import importlib, json, pkgutil
found, pending = {}, ["app", "charioteer_pytest", "metadata", "tasks"]
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
    done = subprocess.run([linked().python, "-c", _WALK], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lacking: dict[str, str | None] = json.loads(done.stdout)
    assert {"app.cli.inferences", "app.recording.query_connection", "tasks.task"} <= lacking.keys()
    assert {name: package for name, package in lacking.items() if package is not None} == NEEDING
