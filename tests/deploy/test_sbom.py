"""Check that the SBOM is valid CycloneDX and lists what is installed."""

import json
import re
import subprocess
import sys
from importlib.metadata import distributions, version
from importlib.resources import files
from typing import Any

import jsonschema_rs
import pytest

from deploy.sbom import bill
from tests.support.servers.server_process import ROOT

Document = dict[str, Any]


@pytest.fixture(scope="module")
def sbom() -> Document:
    command = [sys.executable, "-I", "-B", str(ROOT / "deploy" / "sbom.py")]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout)


def cyclonedx_schema(address: str) -> Any:
    """Return a schema in CycloneDX's package, by name or URL."""
    name = address.rpartition("/")[2].removesuffix(".SNAPSHOT.schema.json")
    return json.loads(files("cyclonedx.schema._res").joinpath(f"{name}.SNAPSHOT.schema.json").read_text())


def test_sbom_is_valid_cyclonedx(sbom: Document) -> None:
    errors = list(
        jsonschema_rs.validator_for(cyclonedx_schema("bom-1.6"), retriever=cyclonedx_schema).iter_errors(sbom)
    )
    assert [f"{list(error.instance_path)}: {error.message:.200}" for error in errors] == []


def test_sbom_lists_every_package_once(sbom: Document) -> None:
    found = {package["name"]: package["version"] for package in sbom["components"]}
    assert len(found) == len(sbom["components"])
    installed = {
        re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower(): package.version for package in distributions()
    }
    assert found == {name: installed[name] for name in installed if name != "charioteer"}
    assert sbom["metadata"]["component"]["version"] == version("charioteer")


def test_sbom_lists_libraries_in_wheels(sbom: Document) -> None:
    (opencv,) = (package for package in sbom["components"] if package["name"] == "opencv-python-headless")
    names = {library["name"].partition("-")[0] for library in opencv["components"]}
    assert {"libavcodec", "libssl"} <= names
    assert all(re.fullmatch("[0-9a-f]{64}", library["hashes"][0]["content"]) for library in opencv["components"])
    assert any(reference["url"].endswith("auditwheel.cdx.json") for reference in opencv["externalReferences"])


def test_sbom_dependencies_refer_to_listed_components(sbom: Document) -> None:
    known = {part["bom-ref"] for part in (sbom["metadata"]["component"], *sbom["components"])}
    needs = {dependency["ref"]: dependency["dependsOn"] for dependency in sbom["dependencies"]}
    assert needs.keys() == known
    assert {ref for refs in needs.values() for ref in refs} <= known
    own = needs[sbom["metadata"]["component"]["bom-ref"]]
    assert f"pkg:pypi/onnxruntime@{version('onnxruntime')}" in own
    assert not any(ref.startswith("pkg:pypi/pytest@") for ref in own)


def test_sbom_is_reproducible(sbom: Document) -> None:
    assert bill() == sbom
