"""The bill of materials is CycloneDX, and says what is installed."""

import json
import re
import subprocess
import sys
from importlib.metadata import distributions, version
from importlib.resources import files
from typing import Any

import jsonschema_rs
import pytest

from tests.support.server_process import ROOT

SCRIPT = ROOT / "deploy" / "sbom.py"
Document = dict[str, Any]


def written() -> str:
    command = [sys.executable, "-I", "-B", str(SCRIPT)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout


@pytest.fixture(scope="module")
def bill() -> Document:
    return json.loads(written())


def schema(address: str) -> Any:
    """A schema that lies in CycloneDX's own package, by its name or address."""
    name = address.rpartition("/")[2].removesuffix(".SNAPSHOT.schema.json")
    return json.loads(files("cyclonedx.schema._res").joinpath(f"{name}.SNAPSHOT.schema.json").read_text())


def test_it_is_valid_by_the_schema_of_cyclonedx(bill: Document) -> None:
    faults = list(jsonschema_rs.validator_for(schema("bom-1.6"), retriever=schema).iter_errors(bill))
    assert [f"{list(each.instance_path)}: {each.message:.200}" for each in faults] == []


def test_it_has_every_package_once(bill: Document) -> None:
    found = {each["name"]: each["version"] for each in bill["components"]}
    assert len(found) == len(bill["components"])
    installed = {re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower(): each.version for each in distributions()}
    assert found == {name: installed[name] for name in installed if name != "charioteer"}
    assert bill["metadata"]["component"]["version"] == version("charioteer")


def test_it_names_the_libraries_within_wheels(bill: Document) -> None:
    (opencv,) = (each for each in bill["components"] if each["name"] == "opencv-python-headless")
    names = {each["name"].partition("-")[0] for each in opencv["components"]}
    assert {"libavcodec", "libssl"} <= names
    assert all(re.fullmatch("[0-9a-f]{64}", each["hashes"][0]["content"]) for each in opencv["components"])
    assert any(each["url"].endswith("auditwheel.cdx.json") for each in opencv["externalReferences"])


def test_what_depends_on_what_is_among_its_parts(bill: Document) -> None:
    known = {each["bom-ref"] for each in (bill["metadata"]["component"], *bill["components"])}
    needs = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert needs.keys() == known
    assert {each for found in needs.values() for each in found} <= known
    own = needs[bill["metadata"]["component"]["bom-ref"]]
    assert f"pkg:pypi/onnxruntime@{version('onnxruntime')}" in own
    assert not any(each.startswith("pkg:pypi/pytest@") for each in own)


def test_the_same_packages_make_the_same_text(bill: Document) -> None:
    assert json.loads(written()) == bill
