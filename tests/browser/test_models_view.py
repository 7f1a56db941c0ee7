"""The page's models view: details, errors, loading and unloading."""

import re

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.looking import PHONE, assert_fits, open_page
from tests.browser.servers import HTML_NAME, StoppableServer


@pytest.fixture
def server(changing_server: StoppableServer) -> str:
    return changing_server.address


def state(server: str, name: str) -> str:
    models = httpx.post(f"{server}/v2/repository/index", timeout=60).json()
    return next(model["state"] for model in models if model["name"] == name)


def test_inputs_and_outputs_of_a_model_are_shown(browser: Browser, server: str) -> None:
    metadata = httpx.get(f"{server}/v2/models/segmenter", timeout=60).json()
    # V2 adds the records as JSON text.
    assert metadata["outputs"].pop(0)["name"] == "predictions"
    with open_page(browser, f"{server}/#models?model=segmenter") as page:
        expect(page.get_by_text("6 models, 5 ready")).to_be_visible()
        segmenter = page.get_by_role("rowgroup", name="segmenter", exact=True)
        for role in ("inputs", "outputs"):
            rows = segmenter.get_by_role("table", name=role.capitalize()).locator("tbody tr")
            expect(rows).to_have_count(len(metadata[role]))
            for row, tensor in zip(rows.all(), metadata[role], strict=True):
                sizes = ", ".join("any" if size < 0 else str(size) for size in tensor["shape"])
                assert row.locator("th, td").all_inner_texts() == [tensor["name"], tensor["datatype"], f"[{sizes}]"]
        expect(segmenter.get_by_role("listitem").filter(has_text="star")).to_be_visible()
        httpx.post(f"{server}/v2/models/segmenter/infer", json={}, timeout=60)
        columns = ["Model", "State", "Task", "Version", "Memory", "Requests", "Errors", "Mean latency", "Actions"]
        assert page.locator(".models-table > thead th").all_inner_texts() == columns
        expect(segmenter.locator(".col-requests").first).to_have_text("1")
        expect(segmenter.locator(".col-memory").first).to_have_text(re.compile(r"^((< )?[\d.]+ MiB)?$"))
        expect(segmenter.locator(".col-errors").first).to_have_text("1")
        score = segmenter.get_by_role("table", name="Parameters").get_by_role("row", name="score_threshold")
        expect(score).to_contain_text("number, 0 to 1")
        for link in segmenter.get_by_role("link").all():
            address = link.get_attribute("href") or ""
            assert address.startswith("#") or httpx.get(address, timeout=60).status_code == 200


def test_reason_why_a_model_is_not_ready_is_shown(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#models", expect_errors=True) as page:
        torn = page.get_by_role("rowgroup", name="torn", exact=True)
        expect(torn).to_contain_text("not ready")
        expect(torn).to_contain_text("Version 1: ")
        expect(torn.get_by_role("button", name="Load torn", exact=True)).to_be_visible()
        expect(torn.get_by_role("button", name="Unload torn")).to_be_hidden()
        torn.get_by_role("button", name="Load torn", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("torn could not be loaded: ")
        expect(torn.get_by_role("button", name="Load torn", exact=True)).to_be_focused()


def test_a_model_is_unloaded_and_loaded_by_keyboard_alone(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#models") as page:
        title = page.get_by_role("button", name="detector", exact=True)
        title.focus()
        page.keyboard.press("Enter")
        expect(title).to_have_attribute("aria-expanded", "true")
        expect(page).to_have_url(re.compile(r"#models\?model=detector$"))
        for name in ("Try detector", "Reload detector", "Unload detector"):
            page.keyboard.press("Tab")
            expect(page.locator(":focus")).to_have_attribute("aria-label", name)
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="Unload detector?")
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(page.locator(":focus")).to_have_attribute("aria-label", "Unload detector")
        assert state(server, "detector") == "READY"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        load = page.get_by_role("button", name="Load detector", exact=True)
        expect(load).to_be_focused()
        assert state(server, "detector") == "UNAVAILABLE"
        expect(page.get_by_role("rowgroup", name="detector", exact=True)).to_contain_text("Version 1: unloaded")
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Unload detector")).to_be_focused()
        assert state(server, "detector") == "READY"


def test_model_name_is_escaped_and_wraps_and_a_change_by_another_client_is_shown(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#models") as page:
        page.get_by_role("button", name=HTML_NAME, exact=True).click()
        rows = page.get_by_role("rowgroup", name=HTML_NAME, exact=True)
        expect(rows.get_by_role("table", name="Inputs")).to_be_visible()
        assert page.locator("main img").count() == 0
        page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        assert_fits(page, PHONE)
        badge = rows.locator(".badge")
        expect(badge).to_have_text("ready")
        path = f"{server}/v2/repository/models/{httpx.URL(HTML_NAME).raw_path.decode()}"
        httpx.post(f"{path}/unload", timeout=60).raise_for_status()
        try:
            expect(badge).to_have_text("not ready")
        finally:
            httpx.post(f"{path}/load", timeout=60).raise_for_status()
        expect(badge).to_have_text("ready")
