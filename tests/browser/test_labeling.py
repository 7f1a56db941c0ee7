"""The part of the view Use in code that connects labelling tools with the model."""

from pathlib import Path

import httpx
from playwright.sync_api import Browser, expect

from tests.browser.axe import violations
from tests.browser.looking import PHONE, assert_fits, open_page
from tests.browser.try_view import MODELS
from tests.support.servers.server_process import run_server


def test_shown_address_and_configuration_are_accepted(browser: Browser, tmp_path: Path) -> None:
    for name in ("segmenter", "half_plus_two"):
        (tmp_path / name).symlink_to(MODELS / name)
    with (
        run_server("--model-repository", str(tmp_path), "--label-studio") as server,
        open_page(browser, f"{server.address}/#request?model=segmenter", size=PHONE) as page,
    ):
        panel = page.get_by_text("Labelling tools")
        panel.click()
        address, config = (
            page.get_by_role("group", name=name).inner_text()
            for name in ("Address for Label Studio", "Labelling configuration")
        )
        assert httpx.get(f"{address}/health", timeout=60).json()["status"] == "UP"
        answer = httpx.post(f"{address}/setup", json={"project": "1.1", "schema": config}, timeout=60)
        assert answer.status_code == 200, answer.text
        assert_fits(page, PHONE)
        assert violations(page) == []
        page.goto(f"{server.address}/#request?model=half_plus_two")
        expect(page.get_by_role("group", name="Python")).to_contain_text("half_plus_two")
        expect(panel).to_have_count(0)
