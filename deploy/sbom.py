"""Write the bill of materials of an image: the packages of the running interpreter, as CycloneDX 1.6.

    /opt/charioteer/bin/python deploy/sbom.py > sbom.cdx.json

For each package it has name, version, licence and dependencies. It also has the native libraries in its wheel, with
their SHA-256, and the bills of materials in the package (PEP 770). The same packages give the same text. This script
uses only the standard library, because nothing else is installed for it.
"""

import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import Distribution, PackagePath, distributions
from pathlib import Path
from typing import Any

_ROOT = "charioteer"
_SPACE = uuid.UUID("9f0f1c8e-6d0c-5a6e-9b51-6f5a4a3f8b11")
_LIBRARY = re.compile(r"\.libs/|(^|/)lib[^/]*\.so[.\d]*$")
_REQUIRED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?P<rest>.*)", re.DOTALL)


def main() -> None:
    """Print the bill of materials as JSON."""
    print(json.dumps(bill(), indent=2))


def bill() -> dict[str, Any]:
    """Return the CycloneDX document."""
    named = [package for package in distributions() if package.metadata["Name"]]
    installed = {normalised(package.metadata["Name"]): package for package in named}
    parts = [component(package) for name, package in sorted(installed.items()) if name != _ROOT]
    needs = [
        {"ref": reference(package), "dependsOn": sorted(required(package, installed))}
        for _, package in sorted(installed.items())
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


def component(package: Distribution) -> dict[str, Any]:
    """Return the CycloneDX component of one package."""
    name = normalised(package.metadata["Name"])
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": reference(package),
        "name": name,
        "version": package.version,
        "purl": reference(package),
    }
    licence = licence_of(package)
    if licence:
        found["licenses"] = [licence]
    files = package.files or ()
    bills = [str(file) for file in files if ".dist-info/sboms/" in str(file)]
    if bills:
        found["externalReferences"] = [{"type": "bom", "url": url} for url in sorted(bills)]
    libraries = list(native_libraries(package, files))
    if libraries:
        found["components"] = libraries
    return found


def native_libraries(package: Distribution, files: Iterable[PackagePath]) -> Iterator[dict[str, Any]]:
    """Yield the shared libraries in a wheel of these files, without its own extension modules."""
    for file in sorted((file for file in files if _LIBRARY.search(str(file))), key=str):
        path = Path(str(package.locate_file(file)))
        if path.is_file():
            with path.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
            # Several packages may contain a library of the same name.
            yield {
                "type": "file",
                "bom-ref": f"{reference(package)}#{file}",
                "name": path.name,
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }


def licence_of(package: Distribution) -> dict[str, Any] | None:
    """Return the licence that the package states: an SPDX expression if it has one, else its own text."""
    metadata = package.metadata.json
    if expression := metadata.get("license_expression"):
        return {"expression": expression}
    classified = [
        text.rpartition(" :: ")[2]
        for text in metadata.get("classifier", ())
        if text.startswith("License :: ") and text != "License :: OSI Approved"
    ]
    stated = " or ".join(classified) or str(metadata.get("license", "")).partition("\n")[0]
    return {"license": {"name": stated}} if stated else None


def required(package: Distribution, installed: Mapping[str, Distribution]) -> set[str]:
    """Return the installed packages that a package needs, without those that only its extras need."""
    found: set[str] = set()
    for text in package.requires or ():
        fits = _REQUIRED.match(text)
        name = normalised(fits["name"]) if fits else ""
        if fits and name in installed and "extra ==" not in fits["rest"]:
            found.add(reference(installed[name]))
    return found - {reference(package)}


@cache  # because each name or version reads the file of metadata again
def reference(package: Distribution) -> str:
    """Return the package URL, https://github.com/package-url/purl-spec."""
    return f"pkg:pypi/{normalised(package.metadata['Name'])}@{package.version}".replace("+", "%2B")


def normalised(name: str) -> str:
    """Return a package's name normalised as in PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
