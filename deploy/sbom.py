"""Writes what is installed beside the interpreter that runs this, as CycloneDX 1.6: the image's bill of materials.

    /opt/charioteer/bin/python deploy/sbom.py > sbom.cdx.json

Of each package: name, version, licence, what it needs, the native libraries that its wheel brings, with their SHA-256,
and the bills of materials that its makers put into it (PEP 770). The same packages make the same text. Nothing but the
standard library is used, because nothing else is installed for it.
"""

import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

_ROOT = "charioteer"
_SPACE = uuid.UUID("9f0f1c8e-6d0c-5a6e-9b51-6f5a4a3f8b11")
_LIBRARY = re.compile(r"\.libs/|(^|/)lib[^/]*\.so[.\d]*$")
_REQUIRED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?P<rest>.*)", re.DOTALL)


def main() -> None:
    """Write it."""
    print(json.dumps(bill(), indent=2))


def bill() -> dict[str, Any]:
    """The document."""
    installed = {normalised(each.metadata["Name"]): each for each in distributions() if each.metadata["Name"]}
    parts = [component(each) for name, each in sorted(installed.items()) if name != _ROOT]
    needs = [
        {"ref": reference(each), "dependsOn": sorted(required(each, installed))}
        for _, each in sorted(installed.items())
    ]
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**component(installed[_ROOT]), "type": "application"}},
        "components": parts,
        "dependencies": needs,
    }
    serial = uuid.uuid5(_SPACE, json.dumps(document, sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": serial.urn, **document}


def component(each: Distribution) -> dict[str, Any]:
    """One package."""
    name = normalised(each.metadata["Name"])
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference(each),
        "name": name,
        "version": each.version,
        "purl": reference(each),
    }
    licence = licence_of(each)
    if licence:
        found["licenses"] = [licence]
    bills = [str(file) for file in each.files or () if ".dist-info/sboms/" in str(file)]
    if bills:
        found["externalReferences"] = [{"type": "bom", "url": url} for url in sorted(bills)]
    libraries = list(native_libraries(each))
    if libraries:
        found["components"] = libraries
    return found


def native_libraries(each: Distribution) -> Iterator[dict[str, Any]]:
    """Those that a wheel brings beside its own extension modules."""
    for file in sorted(each.files or (), key=str):
        path = Path(str(each.locate_file(file)))
        if _LIBRARY.search(str(file)) and path.is_file():
            with path.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
            # One name may stand in several packages.
            yield {
                "type": "file",
                "bom-ref": f"{reference(each)}#{file}",
                "name": path.name,
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }


def licence_of(each: Distribution) -> dict[str, Any] | None:
    """As the package states it: an expression of SPDX where it has one, else in its own words."""
    expression = each.metadata["License-Expression"]
    if expression:
        return {"expression": expression}
    classified = [
        text.rpartition(" :: ")[2]
        for text in each.metadata.get_all("Classifier") or ()
        if text.startswith("License :: ") and text != "License :: OSI Approved"
    ]
    stated = " or ".join(classified) or str(each.metadata["License"] or "").partition("\n")[0]
    return {"license": {"name": stated}} if stated else None


def required(each: Distribution, installed: Mapping[str, Distribution]) -> set[str]:
    """The packages that one needs, as far as they are installed; what only an extra of it needs is left out."""
    found: set[str] = set()
    for text in each.requires or ():
        fits = _REQUIRED.match(text)
        name = normalised(fits["name"]) if fits else ""
        if fits and name in installed and "extra ==" not in fits["rest"]:
            found.add(reference(installed[name]))
    return found - {reference(each)}


def reference(each: Distribution) -> str:
    """The package's URL, https://github.com/package-url/purl-spec."""
    return f"pkg:pypi/{normalised(each.metadata['Name'])}@{each.version}".replace("+", "%2B")


def normalised(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
