"""Accessibility checks of a page with axe-core."""

from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

_AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")

# Rules of WCAG 2.2 A and AA, and axe's own best practices.
_RUN = "() => axe.run(document, { resultTypes: ['violations'] })"


def violations(page: Page) -> list[str]:
    """Return every rule that the page breaks, with the elements that break it."""
    if not page.evaluate("'axe' in window"):
        # Playwright bypasses the page's Content-Security-Policy, which would block the script.
        page.evaluate(_AXE)
    results: dict[str, Any] = page.evaluate(_RUN)
    assert results["passes"], "axe checked nothing"
    return [
        f"{violation['id']}: {violation['help']}: {'; '.join(node['html'][:160] for node in violation['nodes'])}"
        for violation in results["violations"]
    ]
