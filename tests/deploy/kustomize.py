"""What kustomize makes of the folders in deploy/kserve, as far as they ask it to."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from tests.support.server_process import ROOT

FOLDER = ROOT / "deploy" / "kserve"
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())

Document = dict[str, Any]
_KNOWN = {"apiVersion", "kind", "resources", "patches", "images"}


def built(folder: Path) -> list[Document]:
    """The resources of a kustomization, its patches and images applied: a key wins, and a list replaces a list.

    Resources of their own kinds have no merge keys, so that this is what kustomize does with lists too.
    """
    kustomization = read(folder / "kustomization.yaml")
    assert set(kustomization) <= _KNOWN, "kustomize can more than is read here"
    documents: list[Document] = []
    for name in kustomization["resources"]:
        path = (folder / name).resolve()
        documents += built(path) if path.is_dir() else [read(path)]
    for patch in kustomization.get("patches", []):
        change = read(folder / patch["path"])
        (target,) = (each for each in documents if identity(each) == identity(change))
        documents[documents.index(target)] = _merged(target, change)
    tags = {each["name"]: each["newTag"] for each in kustomization.get("images", [])}
    for container in (each for document in documents for each in document["spec"].get("containers", [])):
        if container["image"] in tags:
            container["image"] += f":{tags[container['image']]}"
    return documents


def read(file: Path) -> Document:
    return yaml.safe_load(file.read_text())


def identity(document: Document) -> tuple[str, str, str]:
    return document["apiVersion"], document["kind"], document["metadata"]["name"]


def of_kind(documents: list[Document], kind: str) -> Document:
    (found,) = (each for each in documents if each["kind"] == kind)
    return found


def _merged(value: Any, change: Any) -> Any:
    if not (isinstance(value, Mapping) and isinstance(change, Mapping)):
        return change
    before, after = cast("Document", value), cast("Document", change)
    return before | {key: _merged(before.get(key), each) for key, each in after.items()}
