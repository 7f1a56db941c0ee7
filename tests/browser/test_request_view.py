"""The page's request view: it shows the exact request, and the commands it offers to copy run."""

import json
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.looking import open_page, wait_for_promise
from tests.browser.programs import Programs
from tests.browser.try_view import IMAGES, expect_findings, give_file, infer
from tests.support.models.model_folders import write_model
from tests.support.polling import wait_until
from tests.support.servers.ports import listening_port
from tests.support.servers.server_process import run_server

PROTOCOLS = {
    "chariot": "Chariot",
    "v2": "V2",
    "v1": "V1",
    "tfs": "TensorFlow Serving",
    "grps": "GRPS",
    "grpc": "gRPC",
}
# The page sends nothing to other ports.
SENT_PROTOCOLS = [protocol for protocol in PROTOCOLS if protocol not in ("tfs", "grpc")]
# Characters with a meaning in a shell, Python or JSON.
SPECIAL_NAME = """-O it's "a $HOME `id` \\n €\U0001f600, @x;y .jpg"""
QUESTION = """What's $HOME `id` \\ "in" the\tpicture\U0001f600 JSON?"""


def block_text(page: Page, name: str) -> str:
    return page.get_by_role("group", name=name, exact=True).inner_text()


def copy_text(page: Page, name: str) -> str:
    """Click the button that copies a text, and return the text."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    # The button may still show "Copied" of the text before.
    page.evaluate("navigator.clipboard.writeText('')")
    button = page.get_by_role("button", name=f"Copy: {name}")
    button.click()
    expect(button).to_have_text("Copied")
    return wait_for_promise(page, "() => navigator.clipboard.readText()")


def run_shell(command: str, folder: Path, shell: str = "sh") -> str:
    completed = subprocess.run([shell, "-c", command], cwd=folder, capture_output=True, text=True, timeout=60)
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr == ""
    return completed.stdout


def choose(page: Page, protocol: str) -> None:
    button = page.get_by_role("button", name=PROTOCOLS[protocol], exact=True)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")


def send(page: Page) -> dict[str, Any]:
    """Send the request and return the body of the response."""
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("status").filter(has_text=re.compile("Status 200"))).to_be_visible()
    return json.loads(block_text(page, "Response").split("\n\n", 1)[1])


def find(answer: Any, *keys: str) -> Iterator[str]:
    """Yield the texts with one of these keys in an answer of any protocol, also within JSON text."""
    match answer:
        case dict():
            for key, value in cast("dict[str, Any]", answer).items():
                if key not in keys:
                    yield from find(value, *keys)
                else:
                    # TensorFlow Serving fills the list of an image up with empty labels.
                    yield from [value] if isinstance(value, str) else filter(None, value)
        case list():
            for value in cast("list[Any]", answer):
                yield from find(value, *keys)
        case str() if answer.startswith(("[", "{")):
            yield from find(json.loads(answer), *keys)
        case _:
            pass


def labels(answer: Any) -> list[str]:
    """Return the labels that were found in one image."""
    return list(find(answer, "label", "labels"))


def asked_question(answer: Any) -> str:
    """Return the question that was answered about one image."""
    return next(find(answer, "prompt", "prompts"))


def test_request_and_its_commands_work_over_every_protocol(
    browser: Browser, server: str, programs: Programs, tmp_path: Path
) -> None:
    shutil.copy(IMAGES / "scene.jpg", tmp_path)
    expected = [record["label"] for record in infer(server, "detector", (IMAGES / "scene.jpg").read_bytes())]
    assert len(expected) == 5
    with open_page(browser, f"{server}/#request?model=detector") as page:
        for protocol in PROTOCOLS:
            choose(page, protocol)
            assert labels(programs.run(copy_text(page, "Python"), tmp_path)) == expected
            expect(page.get_by_role("region", name="curl")).to_be_visible(visible=protocol != "grpc")
            expect(page.get_by_role("region", name="Response")).to_be_visible(visible=protocol in SENT_PROTOCOLS)
            if protocol in SENT_PROTOCOLS:
                assert labels(send(page)) == expected
            if protocol == "grpc":
                continue
            assert labels(run_shell(copy_text(page, "curl"), tmp_path)) == expected
            port = "tensorflow-serving" if protocol == "tfs" else None
            ports = httpx.get(f"{server}/page/models.json", timeout=60).json()["ports"]
            host = f"http://127.0.0.1:{ports[port]}" if port else server
            assert f"'{host}/" in block_text(page, "curl")


def test_openai_request_and_its_commands_work(
    browser: Browser, server: str, programs: Programs, tmp_path: Path
) -> None:
    shutil.copy(IMAGES / "shape.jpg", tmp_path)

    def answer_of(completion: Any) -> str:
        return completion["choices"][0]["message"]["content"]

    with open_page(browser, f"{server}/#request?model=vlm&protocol=openai") as page:
        expected = answer_of(send(page))
        assert "star" in expected
        assert answer_of(json.loads(run_shell(copy_text(page, "curl"), tmp_path))) == expected
        assert programs.run(copy_text(page, "Python"), tmp_path).strip() == expected
        page.get_by_label("Model", exact=True).select_option("detector")
        expect(page.get_by_role("button", name="Chariot")).to_have_attribute("aria-pressed", "true")
        expect(page.get_by_role("button", name="OpenAI")).to_be_hidden()


def test_request_uses_the_settings_of_the_try_view_and_is_coloured(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        listed = page.get_by_role("region", name="Results").get_by_role("listitem")
        expect(listed).to_have_count(5)
        page.get_by_role("slider", name="Confidence threshold").fill("0.96")
        expect(listed).to_have_count(3)
        page.get_by_role("button", name="Use in code").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Use in code")
        expect(page).to_have_url(re.compile("score=0.96"))
        page.reload()
        for protocol in ("chariot", "v2", "v1", "grps"):
            choose(page, protocol)
            assert len(labels(send(page))) == 3
        choose(page, "tfs")
        expect(page.get_by_text("TensorFlow Serving has no request parameters")).to_be_visible()
        choose(page, "grpc")
        assert '{"score_threshold": 0.96}' in block_text(page, "Python")
        choose(page, "chariot")
        for block in page.locator("pre:visible").all():
            assert block.evaluate("pre => pre.scrollWidth <= pre.clientWidth")


def test_special_characters_in_names_and_questions_are_escaped(
    browser: Browser, server: str, programs: Programs, tmp_path: Path
) -> None:
    shutil.copy(IMAGES / "shape.jpg", tmp_path / SPECIAL_NAME)
    with open_page(browser, f"{server}/#try?model=vlm") as page:
        page.get_by_label("Choose files").set_input_files(tmp_path / SPECIAL_NAME)
        question = page.get_by_role("textbox", name="Question")
        question.fill(QUESTION)
        question.press("Enter")
        expect(page.locator(".answer:not([aria-busy])")).to_have_count(1)
        page.get_by_role("button", name="Use in code").click()
        for protocol in PROTOCOLS:
            choose(page, protocol)
            assert asked_question(programs.run(copy_text(page, "Python"), tmp_path)) == QUESTION
            for shell in ("sh", "bash") if protocol != "grpc" else ():
                assert asked_question(run_shell(copy_text(page, "curl"), tmp_path, shell)) == QUESTION


def test_file_name_cannot_end_the_here_document(
    browser: Browser, server: str, programs: Programs, tmp_path: Path
) -> None:
    """Escape line breaks: one could end the here-document, and the rest of the name would run as commands."""
    name = "-n \x1b[201~'\\\u202e\u009b$(id)\nJSON\ntouch stolen\n.jpg"
    shutil.copy(IMAGES / "scene.jpg", tmp_path / name)
    with open_page(browser, f"{server}/#try?model=detector") as page:
        expect(page.get_by_text("Drop or paste images here")).to_be_visible()
        give_file(page, "drop", name, "scene.jpg")
        # A dropped file is read before it is added.
        expect(page.locator(".stage")).to_have_attribute("aria-label", f"{name} with results")
        # Results that arrive move the next button.
        expect_findings(page, 5)
        page.get_by_role("button", name="Use in code").click()
        for protocol in ("chariot", "grps"):
            choose(page, protocol)
            command, program = copy_text(page, "curl"), copy_text(page, "Python")
            control_characters = [
                character
                for character in command + program
                if character != "\n" and unicodedata.category(character) in ("Cc", "Cf")
            ]
            assert control_characters == []
            answers = [run_shell(command, tmp_path, "bash"), programs.run(program, tmp_path)]
            assert [len(labels(answer)) for answer in answers] == [5, 5]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_several_images_are_sent_in_one_request(
    browser: Browser, server: str, programs: Programs, tmp_path: Path
) -> None:
    names = ["scene.jpg", "shape.jpg"]
    for name in names:
        shutil.copy(IMAGES / name, tmp_path)
    with open_page(browser, f"{server}/#try?model=detector") as page:
        page.get_by_label("Choose files").set_input_files([IMAGES / name for name in names])
        expect(page.get_by_text("2 answered in")).to_be_visible()
        page.get_by_role("button", name="Use in code").click()
        images = [(IMAGES / name).read_bytes() for name in names]
        expected = [record["label"] for image in images for record in infer(server, "detector", image)]
        assert len(expected) == 6
        for protocol in SENT_PROTOCOLS:
            choose(page, protocol)
            python = programs.run(copy_text(page, "Python"), tmp_path)
            # tritonclient prints a line for each image.
            printed = python.splitlines() if protocol == "v2" else python
            for answer in (send(page), run_shell(copy_text(page, "curl"), tmp_path), printed):
                assert labels(answer) == expected


def test_tensors_and_texts_work_over_every_protocol(
    browser: Browser, server: str, programs: Programs, tmp_path: Path
) -> None:
    with open_page(browser, f"{server}/#models") as page:
        for model, label, value, expected in (
            ("half_plus_two", "Tensors by name, as JSON", '{"x": [1, 2, 5]}', "2.5"),
            ("greeter", "", "", "text"),
            ("text_generation", "Text", "one", "one, one"),
        ):
            page.goto(f"{server}/#try?model={model}")
            expect(page.get_by_role("combobox", name="Model")).to_have_value(model)
            if label:
                page.get_by_role("textbox", name=label).fill(value)
            page.get_by_role("button", name="Run").click()
            expect(page.get_by_text("Answered in")).to_be_visible()
            page.get_by_role("button", name="Use in code").click()
            for protocol in PROTOCOLS:
                choose(page, protocol)
                assert expected in programs.run(copy_text(page, "Python"), tmp_path)
                if protocol in SENT_PROTOCOLS:
                    assert expected in json.dumps(send(page))
                if protocol != "grpc":
                    assert expected in run_shell(copy_text(page, "curl"), tmp_path)


def test_protocol_can_be_chosen_before_the_models_are_loaded(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#models") as page:
        held_routes: list[Route] = []
        page.route("**/page/models.json", lambda route: held_routes.append(route))
        page.goto(f"{server}/#request?model=greeter")
        button = page.get_by_role("button", name="V2", exact=True)
        button.click()
        expect(page).to_have_url(f"{server}/#request?model=greeter&protocol=v2")
        for route in held_routes:
            route.continue_()
        expect(button).to_have_attribute("aria-pressed", "true")
        expect(page.get_by_role("group", name="curl", exact=True)).to_contain_text("/v2/models/greeter/infer")


SLOW_MODEL = """
import pathlib, time

while not pathlib.Path("{release}").exists():
    time.sleep(0.05)

class Model:
    def predict(self, image):
        boxes = [[10 * index, 0, 10 * index + 5, 5] for index in range(5)]
        return {{"labels": ["dot"] * 5, "scores": [0.9] * 5, "boxes": boxes}}
"""


def test_page_waits_for_a_model_that_loads_and_knows_a_server_of_chariot_v2_without_other_ports(
    browser: Browser, programs: Programs, tmp_path: Path
) -> None:
    (folder := tmp_path / "images").mkdir()
    shutil.copy(IMAGES / "scene.jpg", folder)
    write_model(tmp_path / "slow", SLOW_MODEL.format(release=(release := tmp_path / "release")))
    arguments = ("--chariot-protocol", "chariot-v2", "--no-grpc", "--no-tensorflow-serving", "--allow-code")
    with run_server("--model", str(tmp_path / "slow"), *arguments) as server:
        wait_until(lambda: listening_port(server.process.pid) is not None)
        address = f"http://127.0.0.1:{listening_port(server.process.pid)}"
        with open_page(browser, f"{address}/#try?sample=scene.jpg") as page:
            expect(page.get_by_role("alert")).to_contain_text("No model is ready")
            release.touch()
            expect_findings(page, 5)
            expect(page.get_by_role("alert")).to_be_hidden()
            page.goto(f"{address}/#request")
            expect(page.get_by_role("button", name="Send")).to_be_visible()
            assert len(send(page)["output"]) == 5
            assert len(json.loads(run_shell(copy_text(page, "curl"), folder))["output"]) == 5
            assert len(json.loads(programs.run(copy_text(page, "Python"), folder))["output"]) == 5
            for protocol in ("tfs", "grpc"):
                expect(page.get_by_role("button", name=PROTOCOLS[protocol], exact=True)).to_be_hidden()
            choose(page, "v1")
            assert len(send(page)["predictions"][0]) == 5
        assert server.stop() == 0
