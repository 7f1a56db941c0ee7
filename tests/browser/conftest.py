"""One browser for the tests of this folder, and one server for those that change nothing in it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import chromium
from tests.browser.programs import Programs, run_programs
from tests.browser.try_view import MODELS
from tests.support.models.model_folders import write_model
from tests.support.servers.server_process import run_server

TEXT_MODELS = {
    "text_classification": """
class Model:
    def predict(self, text: str) -> dict[str, float]:
        return {"positive": 0.75, "negative": 0.25}
""",
    "token_classification": """
import re

class Model:
    def predict(self, text: str) -> list[dict[str, object]]:
        words = re.finditer(r"(?<=\\w )[A-Z]\\w+", text)
        return [{"entity_group": "NAME", "score": 1.0, "start": word.start(), "end": word.end()} for word in words]
""",
    "text_generation": """
class Model:
    def predict(self, text: str) -> str:
        return f"{text}, {text}"
""",
}


# Not session scope: while Playwright runs, no other test of the process can run an event loop.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the trained fixture models and a model of each text task."""
    repository = tmp_path_factory.mktemp("repository")
    for model in set(MODELS.glob("*/")) - {MODELS / "face-detector"}:
        (repository / model.name).symlink_to(model)
    for name, code in TEXT_MODELS.items():
        write_model(repository / name, code, task_type=name.upper())
    with run_server("--model-repository", str(repository), "--allow-code") as process:
        yield process.address


@pytest.fixture(scope="package")
def programs() -> Iterator[Programs]:
    with run_programs() as programs:
        yield programs
