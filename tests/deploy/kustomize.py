"""Build the kustomizations in deploy/kserve; only the features that they use are supported."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from tests.support.server_process import ROOT

FOLDER = ROOT / "deploy" / "kserve"
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())

Document = dict[str, Any]
_KNOWN = {"apiVersion", "kind", "resources", "patches", "images"}


def build(folder: Path) -> list[Document]:
    """Return the resources of a kustomization with patches and images applied.

    A list in a patch replaces the list of the resource. So does kustomize, because custom resources have no merge keys.
    """
    kustomization = read(folder / "kustomization.yaml")
    assert set(kustomization) <= _KNOWN, "this kustomize feature is not supported here"
    documents: list[Document] = []
    for name in kustomization["resources"]:
        path = (folder / name).resolve()
        documents += build(path) if path.is_dir() else [read(path)]
    for patch in kustomization.get("patches", []):
        patch_value = read(folder / patch["path"])
        (target,) = (document for document in documents if identity(document) == identity(patch_value))
        documents[documents.index(target)] = _merge(target, patch_value)
    tags = {image["name"]: image["newTag"] for image in kustomization.get("images", [])}
    for container in (container for document in documents for container in document["spec"].get("containers", [])):
        if container["image"] in tags:
            container["image"] += f":{tags[container['image']]}"
    return documents


def read(file: Path) -> Document:
    return yaml.safe_load(file.read_text())


def identity(document: Document) -> tuple[str, str, str]:
    return document["apiVersion"], document["kind"], document["metadata"]["name"]


def of_kind(documents: list[Document], kind: str) -> Document:
    (found,) = (document for document in documents if document["kind"] == kind)
    return found


def _merge(value: Any, patch_value: Any) -> Any:
    if not (isinstance(value, Mapping) and isinstance(patch_value, Mapping)):
        return patch_value
    before, after = cast("Document", value), cast("Document", patch_value)
    return before | {key: _merge(before.get(key), member) for key, member in after.items()}
