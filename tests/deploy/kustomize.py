"""Build the kustomizations in deploy; only the features that they use are supported."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from tests.support.servers.client_environments import python_with
from tests.support.servers.server_process import ROOT

KSERVE, KUBERNETES = ROOT / "deploy" / "kserve", ROOT / "deploy" / "kubernetes"

Document = dict[str, Any]
_KNOWN = {"apiVersion", "kind", "resources", "patches", "images"}


def overlays(folder: Path) -> list[Path]:
    return sorted((folder / "overlays").iterdir())


def build(folder: Path) -> list[Document]:
    """Return the resources of a kustomization with patches and images applied."""
    kustomization = read(folder / "kustomization.yaml")
    assert set(kustomization) <= _KNOWN, "this kustomize feature is not supported here"
    documents: list[Document] = []
    for name in kustomization["resources"]:
        path = (folder / name).resolve()
        documents += build(path) if path.is_dir() else [read(path)]
    for patch in kustomization.get("patches", []):
        patch_value = read(folder / patch["path"])
        if "target" in patch:
            (operation,) = patch_value
            assert (operation["op"], operation["path"]) == ("replace", "/kind")
            of_kind(documents, patch["target"]["kind"])["kind"] = operation["value"]
        else:
            (target,) = (document for document in documents if identity(document) == identity(patch_value))
            # Only lists of Kubernetes' own kinds have merge keys.
            merged = _merge(target, patch_value, by_name=patch_value["apiVersion"] == "apps/v1")
            documents[documents.index(target)] = merged
    for image in kustomization.get("images", []):
        for container in (container for document in documents for container in containers(document)):
            if container["image"].partition(":")[0] == image["name"]:
                container["image"] = f"{image.get('newName', image['name'])}:{image['newTag']}"
    return documents


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


def faults(documents: Sequence[Document]) -> list[list[str]]:
    """Return the errors that the models of Kubernetes and KServe find in each resource."""
    script = str(ROOT / "tests/deploy/kubernetes_kinds.py")
    command = [str(python_with("kserve")), script]
    process = subprocess.run(command, input=json.dumps(documents), capture_output=True, text=True, timeout=120, cwd="/")
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def _merge(value: Any, patch_value: Any, *, by_name: bool) -> Any:
    if by_name and isinstance(value, list) and isinstance(patch_value, list):
        items = {item["name"]: item for item in cast("list[Document]", value)}
        patches = {item["name"]: item for item in cast("list[Document]", patch_value)}
        return list(_merge(items, patches, by_name=by_name).values())
    if not (isinstance(value, Mapping) and isinstance(patch_value, Mapping)):
        return patch_value
    before, after = cast("Document", value), cast("Document", patch_value)
    return before | {key: _merge(before.get(key), member, by_name=by_name) for key, member in after.items()}
