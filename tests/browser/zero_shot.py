"""Pages on which a fixture model takes candidate labels, because zero-shot models need torch."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, Request, Route

from tests.browser.looking import open_page

_SCHEMA = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None}


@contextmanager
def open_zero_shot(browser: Browser, url: str, model: str) -> Generator[Page]:
    """Open the page at `url` as if `model` needed candidate labels."""

    def describe(route: Route) -> None:
        response = route.fetch()
        catalogue = response.json()
        for entry in catalogue["models"]:
            if entry["name"] == model:
                entry["parameters"]["candidate_labels"] = _SCHEMA
        route.fulfill(response=response, json=catalogue)

    with open_page(browser, url.partition("#")[0], expect_errors=True) as page:
        page.route("**/page/models.json", describe)
        page.goto("about:blank")
        page.goto(url)
        yield page


def sent_labels(request: Request) -> tuple[str, Any]:
    """Return the model of a request in Chariot's protocol, and its candidate labels."""
    body = json.loads(request.post_data or "{}")
    parameters = {**body.get("parameters", {}), **body["inputs"][0].get("parameters", {})}
    return request.url.split("/")[-2], parameters.get("candidate_labels")
