"""Build the kustomizations in deploy with kubectl, and validate what it builds.

`kserve_schemas.json` has the schemas of a release of KServe; its member `source` names it, and what was left out.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

from tests.support.servers.server_process import ROOT

KSERVE, KUBERNETES = ROOT / "deploy" / "kserve", ROOT / "deploy" / "kubernetes"

Document = dict[str, Any]
_KUBECTL = Path(sys.prefix) / "bin" / "kubectl"
_SCHEMAS: Mapping[str, Any] = json.loads((ROOT / "tests/deploy/kserve_schemas.json").read_text())


def overlays(folder: Path) -> list[Path]:
    return sorted((folder / "overlays").iterdir())


def build(folder: Path) -> list[Document]:
    """Return the resources of a kustomization with patches and images applied."""
    return deepcopy(_build(folder))


@cache
def _build(folder: Path) -> list[Document]:
    process = subprocess.run([_KUBECTL, "kustomize", folder], capture_output=True, text=True, timeout=60)
    assert (process.returncode, process.stderr) == (0, "")
    return list(yaml.safe_load_all(process.stdout))


def containers(document: Document) -> list[Document]:
    """Return the containers of a runtime or a Deployment."""
    spec = document["spec"]
    pod = spec["template"]["spec"] if "template" in spec else spec
    return [*pod.get("initContainers", []), *pod.get("containers", [])]


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def identity(document: Document) -> tuple[str, str, str]:
    return document["apiVersion"], document["kind"], document["metadata"]["name"]


def of_kind(documents: list[Document], kind: str) -> Document:
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def kserve_errors(document: Document) -> Iterator[str]:
    """Yield where an InferenceService or a runtime breaks the schema of KServe's custom resources."""
    # The runtimes of a cluster and of a namespace have one schema.
    schema = _SCHEMAS[document["kind"].removeprefix("Cluster")]
    for error in jsonschema_rs.validator_for(schema).iter_errors(document):
        yield f"{'.'.join(map(str, error.instance_path))}: {error.message}"
