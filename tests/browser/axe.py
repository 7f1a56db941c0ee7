"""axe-core in a page: what somebody could not reach, read, or be told of."""

import os
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.support.server_process import ROOT

# `make browser` puts it there, with npm and the lock file beside this module.
_AXE = ROOT / ".venv" / "browser" / "node_modules" / "axe-core" / "axe.min.js"

# The rules of WCAG 2.2 A and AA, and axe's own of what is good practice.
_RUN = "() => axe.run(document, { resultTypes: ['violations'] })"


def violations(page: Page) -> list[str]:
    """Every rule that the page breaks as it stands, with the elements that break it.

    Without axe-core the test is skipped, but in CI, where `make test-slow` has installed it.
    """
    if not _AXE.exists():
        missing = "axe-core is not installed: make browser"
        if "CI" in os.environ:
            pytest.fail(missing)
        pytest.skip(missing)
    if not page.evaluate("'axe' in window"):
        # Playwright evaluates beside the page's Content-Security-Policy, which would let in no script.
        page.evaluate(_AXE.read_text(encoding="utf-8"))
    found: dict[str, Any] = page.evaluate(_RUN)
    assert found["passes"], "axe looked at nothing"
    return [
        f"{each['id']}: {each['help']}: {'; '.join(node['html'][:160] for node in each['nodes'])}"
        for each in found["violations"]
    ]
