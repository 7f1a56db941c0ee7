"""Licences and native libraries of packages: those of a bill of materials, those that docs/supply_chain.md names."""

import re
from collections.abc import Iterable
from typing import Any

from tests.support.server_process import ROOT

PLAIN = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT"}
"""What dependencies are chosen by. Whatever else there is stands in a table of the document."""
_IN_OTHER_WORDS = {
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


def documented(title: str) -> dict[str, str]:
    """Of a table of the document, the second column by the first."""
    text = (ROOT / "docs" / "supply_chain.md").read_text()
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \|", text.partition(f"## {title}\n")[2].partition("\n#")[0], re.MULTILINE
    )
    return {first.strip().strip("`"): second.strip() for first, second in rows[2:]}


def licence(component: dict[str, Any]) -> set[str]:
    """The licences in what a package states, by their SPDX names where they have one."""
    told: list[dict[str, Any]] = component.get("licenses") or [{"expression": "none stated"}]
    (found,) = told
    # Brackets group an expression; in somebody's own words they belong to a name.
    stated: str = re.sub("[()]", "", found["expression"]) if "expression" in found else found["license"]["name"]
    return {_IN_OTHER_WORDS.get(name, name) for name in re.split(r" (?:AND|OR|or) ", stated)}


def others(components: Iterable[dict[str, Any]]) -> dict[str, set[str]]:
    """The packages with other licences than the usual ones, and those licences."""
    found = {each["name"]: licence(each) - PLAIN for each in components}
    return {name: licences for name, licences in found.items() if licences}


def other_licences_documented() -> dict[str, set[str]]:
    return {name: {*text.split(", ")} for name, text in documented("Other licences").items()}


def libraries(components: Iterable[dict[str, Any]]) -> dict[str, set[str]]:
    """The native libraries that wheels bring, without their versions."""
    return {
        each["name"]: {library["name"].partition(".so")[0].partition("-")[0] for library in each["components"]}
        for each in components
        if "components" in each
    }


def libraries_documented() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, text in documented("Libraries within wheels").items():
        found.setdefault(name.partition(":")[0].strip("`"), set()).update(re.findall(r"`(lib[^`]+)`", text))
    return found
