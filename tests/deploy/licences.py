"""Read licences and native libraries of packages from an SBOM, and from docs/security.md#supply-chain."""

import re
from collections.abc import Iterable
from typing import Any

from tests.support.servers.server_process import ROOT

USUAL = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT"}
"""Licences that need no entry in the document."""
_SPDX_NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}


def documented_table(title: str) -> dict[str, str]:
    """Return the second column of a table in the document, by the first column."""
    text = (ROOT / "docs" / "security.md").read_text()
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \|", text.partition(f"## {title}\n")[2].partition("\n#")[0], re.MULTILINE
    )
    return {first.strip().strip("`"): second.strip() for first, second in rows[2:]}


def licences_of(component: dict[str, Any]) -> set[str]:
    """Return the declared licences of a package, as SPDX names where possible."""
    declared: list[dict[str, Any]] = component.get("licenses") or [{"expression": "none stated"}]
    (licence,) = declared
    # Brackets group an SPDX expression; in free text they are part of a name.
    expression: str = (
        re.sub("[()]", "", licence["expression"]) if "expression" in licence else licence["license"]["name"]
    )
    return {_SPDX_NAMES.get(name, name) for name in re.split(r" (?:AND|OR|or) ", expression)}


def unusual_licences(components: Iterable[dict[str, Any]]) -> dict[str, set[str]]:
    """Return packages with licences other than the usual ones, and these licences."""
    found = {component["name"]: licences_of(component) - USUAL for component in components}
    return {name: licences for name, licences in found.items() if licences}


def documented_licences() -> dict[str, set[str]]:
    return {name: {*text.split(", ")} for name, text in documented_table("Other licences").items()}


def libraries(components: Iterable[dict[str, Any]]) -> dict[str, set[str]]:
    """Return the native libraries in wheels, without versions."""
    return {
        component["name"]: {
            library["name"].partition(".so")[0].partition("-")[0] for library in component["components"]
        }
        for component in components
        if "components" in component
    }


def documented_libraries() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, text in documented_table("Libraries within wheels").items():
        found.setdefault(name.partition(":")[0].strip("`"), set()).update(re.findall(r"`(lib[^`]+)`", text))
    return found
