"""The metrics page in a browser, over a real server with real traffic."""

import re
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.looking import open_page
from tests.browser.try_view import IMAGES, MODELS, infer
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64
from tests.support.servers.server_process import run_server

HTML_NAME = "<img src=x onerror=alert(1)>"
HOUR = "/#metrics?window=60m"


@pytest.fixture(scope="module")
def used_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a server that answered 5 detector requests, refused 3, and answered 2 classifier requests with 2 images."""
    repository = tmp_path_factory.mktemp("repository")
    shutil.copytree(MODELS / "detector", repository / "detector")
    shutil.copytree(MODELS / "classifier", repository / HTML_NAME)
    scene = (IMAGES / "scene.jpg").read_bytes()
    image = encode_base64(scene)
    with (
        run_server("--model-repository", str(repository)) as server,
        httpx.Client(base_url=server.address, timeout=60) as client,
    ):
        for _ in range(5):
            infer(server.address, "detector", scene)
        for _ in range(3):
            assert client.post("/v2/models/detector/infer", json={"inputs": []}).status_code == 400
        for _ in range(2):
            body = {"inputs": [image_input(image, "a"), image_input(image, "b")]}
            client.post(f"/v2/models/{httpx.URL(HTML_NAME).raw_path.decode()}/infer", json=body).raise_for_status()
        yield server.address


@contextmanager
def open_live_page(browser: Browser, url: str) -> Generator[Page]:
    """Open a page and wait until it is live."""
    with open_page(browser, url) as page:
        expect(page.get_by_role("status")).to_have_text("Live")
        yield page


def tile(page: Page, name: str) -> str:
    return page.locator(f"[data-tile={name}]").inner_text()


def cells(page: Page, model: str) -> dict[str, str]:
    """Return the row of a model in the table, by column."""
    row = page.get_by_role("row").filter(has=page.get_by_role("button", name=model, exact=True))
    heads = page.locator(".models thead th").all_inner_texts()
    return dict(zip(heads, row.locator("th, td").all_inner_texts(), strict=True))


def test_figures_match_the_sent_requests(browser: Browser, used_server: str) -> None:
    with open_live_page(browser, f"{used_server}{HOUR}") as page:
        expect(page.locator("[data-tile=rate]")).to_contain_text("10 in 60 min")
        assert "3 of 10" in tile(page, "errors")
        assert "30.0 %" in tile(page, "errors")
        assert re.search(r"p50\n\d+(\.\d+)? m?s\nmean \d+(\.\d+)? m?s", tile(page, "median"))
        assert re.search(r"\d+ MiB", tile(page, "memory"))
        assert "In flight\n0" in tile(page, "flight")
        all_models, detector, html_named = (cells(page, name) for name in ("All models", "detector", HTML_NAME))
        assert (all_models["Requests"], all_models["Errors"]) == ("10", "30.0 %")
        assert (detector["Requests"], detector["Errors"], detector["Batch"]) == ("8", "37.5 %", "1")
        assert (html_named["Requests"], html_named["Errors"], html_named["Batch"]) == ("2", "0.0 %", "2")
        # In seconds on a busy machine.
        assert all(re.fullmatch(r"\d+(\.\d+)? m?s", row["p99.9"]) for row in (all_models, detector, html_named))


def test_page_shows_that_the_server_is_offline(browser: Browser, used_server: str) -> None:
    notice = "Not ready: load balancers send no requests to this server"
    with (
        open_live_page(browser, f"{used_server}/#metrics") as page,
        httpx.Client(base_url=used_server, timeout=60) as client,
    ):
        expect(page.get_by_role("button", name="detector", exact=True)).to_be_visible()
        expect(page.get_by_text(notice)).to_be_hidden()
        client.post("/grps/v1/health/offline").raise_for_status()
        try:
            expect(page.get_by_text(notice)).to_be_visible()
            expect(page.get_by_text("taken offline by its operator")).to_be_visible()
        finally:
            client.post("/grps/v1/health/online").raise_for_status()
        expect(page.get_by_text(notice)).to_be_hidden()


def test_figures_update_while_the_page_is_open(browser: Browser) -> None:
    with (
        run_server("--model", str(MODELS / "classifier")) as server,
        open_live_page(browser, f"{server.address}{HOUR}") as page,
    ):
        expect(page.locator("[data-tile=rate]")).to_contain_text("0 in 60 min")
        expect(page.get_by_text("No requests yet")).to_be_visible()
        expect(page.get_by_role("link", name="Use in code shows how")).to_have_attribute("href", "#request")
        infer(server.address, "classifier", (IMAGES / "scene.jpg").read_bytes())
        expect(page.locator("[data-tile=rate]")).to_contain_text("1 in 60 min")
        expect(page.get_by_text("No requests yet")).to_be_hidden()
        assert cells(page, "classifier")["Errors"] == "0.0 %"


def test_details_of_a_model_open_by_keyboard(browser: Browser, used_server: str) -> None:
    with open_live_page(browser, f"{used_server}/#metrics") as page:
        expect(page.get_by_role("heading", level=2, name="All models")).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("main")).to_be_focused()
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        hour = page.get_by_role("button", name="60 min")
        expect(hour).to_be_focused()
        page.keyboard.press("Enter")
        expect(hour).to_have_attribute("aria-pressed", "true")
        expect(page.locator("[data-tile=rate]")).to_contain_text("in 60 min")
        detector = page.get_by_role("button", name="detector", exact=True)
        for _ in range(4):
            page.keyboard.press("Tab")
        expect(detector).to_be_focused()
        page.keyboard.press("Space")
        expect(detector).to_have_attribute("aria-expanded", "true")
        expect(page.get_by_role("heading", level=2, name="detector")).to_be_visible()
        # The row was updated meanwhile and kept the focus.
        expect(detector).to_be_focused()
        expect(page).to_have_url(re.compile(r"#metrics\?window=60m&model=detector$"))
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=2, name="All models")).to_be_visible()
        page.go_back()
        expect(page.get_by_role("heading", level=2, name="detector")).to_be_visible()


def test_details_show_the_chosen_model_and_charts_the_hovered_values(browser: Browser, used_server: str) -> None:
    with open_live_page(browser, f"{used_server}{HOUR}&model=detector") as page:
        percentiles = page.get_by_role("table", name="Latency percentiles")
        expect(percentiles.get_by_role("row")).to_have_count(9)
        expect(percentiles).to_contain_text("p99.99")
        expect(page.get_by_role("table", name="Batch sizes").get_by_role("row")).to_have_text(["15"])
        errors = page.get_by_role("img", name=re.compile("^Errors, last 60 minutes: 37.5 % now"))
        expect(errors).to_be_visible()
        assert page.locator("svg:not([aria-hidden]):not([role=img][aria-label])").count() == 0
        chart = page.locator("figure").filter(has_text="Requests per second")
        expect(chart.locator(".axis-end")).to_have_text("now")
        chart.locator("svg").hover(position={"x": 30, "y": 20})
        expect(chart.locator(".axis-end")).to_have_text(re.compile("^\u2212" + r"5\d min$"))
        expect(chart.locator(".value")).to_have_text("\u2013")
        page.mouse.move(0, 0)
        expect(chart.locator(".axis-end")).to_have_text("now")


def test_hidden_page_closes_its_event_stream(browser: Browser, used_server: str) -> None:
    set_hidden = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
    set_hidden += "document.dispatchEvent(new Event('visibilitychange')); }"
    with open_live_page(browser, f"{used_server}/#metrics") as page:
        with page.expect_event("requestfailed", lambda request: "/page/events" in request.url):
            page.evaluate(set_hidden, True)
        expect(page.get_by_role("status")).to_have_text("Paused while hidden")
        page.evaluate(set_hidden, False)
        expect(page.get_by_role("status")).to_have_text("Live")


def test_metrics_page_is_served_at_the_path_of_grps(browser: Browser, used_server: str) -> None:
    with open_live_page(browser, f"{used_server}/grps/v1/monitor/metrics") as page:
        expect(page.get_by_role("heading", level=1)).to_have_text("Metrics")
        page.get_by_role("button", name="60 min").click()
        expect(page.locator("[data-tile=rate]")).to_contain_text("10 in 60 min")
        page.get_by_role("link", name="Try").click()
        expect(page.get_by_role("combobox", name="Model")).to_be_visible()
