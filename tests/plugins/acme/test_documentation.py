"""The page on plugins shows the code of this plugin, and names every hook."""

import re

import pytest

from app.core.hooks import Parts, Plugin
from app.core.plugins import registry
from tests.plugins.acme.process import PACKAGE
from tests.support.servers.server_process import ROOT

PAGE = (ROOT / "docs" / "plugins.md").read_text()
CODE = "".join(file.read_text() for file in (PACKAGE / "acme").rglob("*.*") if file.suffix in (".py", ".js"))
HOOKS = {*Plugin.__struct_fields__} - {"api", "name", "summary", "requires", "extra"}


@pytest.mark.parametrize("block", re.findall(r"^```(?:python|js)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
def test_every_example_is_code_of_the_tested_plugin(block: str) -> None:
    assert block in CODE


def test_every_hook_is_listed_and_those_with_a_link_have_an_example() -> None:
    table = PAGE[PAGE.index("## Hooks") : PAGE.index("### options")]
    listed = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE)))
    assert {*listed} == HOOKS
    rows = re.findall(r"^\| \[`(\w+)`\]\(#(\w+)\)", PAGE, re.MULTILINE)
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
    assert [anchor for _, anchor in rows if "\n```" not in sections.get(anchor, "")] == []


def test_every_part_of_a_server_is_listed() -> None:
    table = PAGE[PAGE.index("### start") : PAGE.index("### public")]
    rows = "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
    assert {*Parts.__struct_fields__} == {*re.findall(r"`(\w+)`", rows)}


def test_examples_name_built_in_plugins() -> None:
    names = re.findall(r"\| `(\w+)` \|$", PAGE, re.MULTILINE)
    assert len(names) > 10
    assert {*names} <= registry().loaded.keys()
