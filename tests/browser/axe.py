"""Accessibility checks of a page with axe-core."""

import os
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.support.servers.server_process import ROOT

# `make browser` installs it there, with npm and the lock file beside this module.
_AXE = ROOT / ".venv" / "browser" / "node_modules" / "axe-core" / "axe.min.js"

# Rules of WCAG 2.2 A and AA, and axe's own best practices.
_RUN = "() => axe.run(document, { resultTypes: ['violations'] })"


def violations(page: Page) -> list[str]:
    """Return every rule that the page breaks, with the elements that break it.

    Skip the test without axe-core, but fail in CI, where `make test-slow` installs it.
    """
    if not _AXE.exists():
        missing = "axe-core is not installed: make browser"
        if "CI" in os.environ:
            pytest.fail(missing)
        pytest.skip(missing)
    if not page.evaluate("'axe' in window"):
        # Playwright bypasses the page's Content-Security-Policy, which would block the script.
        page.evaluate(_AXE.read_text(encoding="utf-8"))
    results: dict[str, Any] = page.evaluate(_RUN)
    assert results["passes"], "axe checked nothing"
    return [
        f"{violation['id']}: {violation['help']}: {'; '.join(node['html'][:160] for node in violation['nodes'])}"
        for violation in results["violations"]
    ]
