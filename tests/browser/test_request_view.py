"""What the page shows of the wire: it is what goes over it, and what it offers to paste runs."""

import json
import re
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.axe import violations
from tests.browser.looking import DESKTOP, PHONE, Scheme, Size, fits, looking
from tests.support.chariot import image_input
from tests.support.environments import python_with
from tests.support.pictures import base64_text
from tests.support.server_process import ROOT, serving

MODELS = ROOT / "fixtures" / "models"
IMAGES = ROOT / "fixtures" / "images"
PROTOCOLS = {
    "chariot": "Chariot",
    "v2": "V2 JSON",
    "v1": "V1",
    "tfs": "TensorFlow Serving",
    "grps": "GRPS",
    "grpc": "gRPC",
}
# What a shell, Python or JSON would make something else of.
NASTY = """-O it's "a $HOME `id` \\n €\U0001f600, @x;y .jpg"""
QUESTION = """What's $HOME `id` \\ "in" the\tpicture\U0001f600 JSON?"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    repository = tmp_path_factory.mktemp("repository")
    for name in ("detector", "vlm", "half_plus_two", "greeter"):
        (repository / name).symlink_to(MODELS / name)
    text = "text_classification"
    shutil.copytree(ROOT / "app" / "cli" / "scaffold" / text, repository / text)
    with serving("--model-repository", str(repository), "--allow-code") as server:
        yield server.address


def block(page: Page, name: str) -> str:
    return page.get_by_role("group", name=name, exact=True).inner_text()


def pasted(page: Page, name: str) -> str:
    """What the button beside a text copies."""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = page.get_by_role("button", name=f"Copy: {name}")
    button.click()
    expect(button).to_have_text("Copied")
    return page.evaluate("navigator.clipboard.readText()")


DROP = """([name, data]) => {
  const bytes = Uint8Array.from(atob(data), each => each.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type: "image/jpeg" }));
  const options = { bubbles: true, cancelable: true, dataTransfer: transfer };
  document.querySelector("main").dispatchEvent(new DragEvent("drop", options));
}"""


def run_shell(command: str, folder: Path, shell: str = "sh") -> str:
    done = subprocess.run([shell, "-c", command], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def run_python(program: str, folder: Path, python: Path | str = sys.executable) -> str:
    done = subprocess.run([str(python), "-c", program], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def choose(page: Page, protocol: str) -> None:
    button = page.get_by_role("button", name=PROTOCOLS[protocol], exact=True)
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")


def send(page: Page) -> dict[str, Any]:
    """Send the request, and read the body of what came back."""
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("status").filter(has_text=re.compile("Status 200"))).to_be_visible()
    return json.loads(block(page, "Response").split("\n\n", 1)[1])


def labels(protocol: str, answer: Any) -> list[str]:
    """The labels of what was found in one picture, out of an answer in any protocol."""
    if protocol == "chariot":
        records = answer["outputs"][0]["data"][0]
    elif protocol == "v2":
        records = json.loads(answer["outputs"][0]["data"][0])
    elif protocol == "v1":
        records = answer["predictions"][0]
    elif protocol == "tfs":
        return [each for each in answer["predictions"][0]["labels"] if each]
    else:
        records = json.loads(answer["str_data"])
    return [each["label"] for each in records]


def prompt(protocol: str, answer: Any) -> str:
    """The question that was answered about one picture, out of an answer in any protocol."""
    if protocol == "tfs":
        return answer["predictions"][0]["prompts"][0]
    texts = {"v2": lambda: answer["outputs"][0]["data"][0], "grps": lambda: answer["str_data"]}
    if protocol in texts:
        return json.loads(texts[protocol]())[0]["prompt"]
    records = answer["predictions"][0] if protocol == "v1" else answer["outputs"][0]["data"][0]
    return records[0]["prompt"]


def test_every_protocol_is_shown_sent_and_pasted(browser: Browser, server: str, tmp_path: Path) -> None:
    shutil.copy(IMAGES / "scene.jpg", tmp_path)
    body = {"inputs": [image_input(base64_text((IMAGES / "scene.jpg").read_bytes()))]}
    found = httpx.post(f"{server}/v2/models/m-detector/infer", json=body, timeout=60).json()
    wanted = labels("chariot", found)
    assert len(wanted) == 5
    with looking(browser, f"{server}/#request?model=detector") as page:
        for protocol in PROTOCOLS:
            choose(page, protocol)
            answer = send(page)
            if protocol == "grpc":
                records = json.loads(block(page, "The same as text"))
                assert [each["label"] for each in records] == wanted
                expect(page.get_by_role("region", name="curl")).to_be_hidden()
                output = run_python(pasted(page, "Python"), tmp_path, python_with("tritonclient"))
                assert all(each in output for each in wanted)
                continue
            assert labels(protocol, answer) == wanted
            assert labels(protocol, json.loads(run_shell(pasted(page, "curl"), tmp_path))) == wanted
            assert labels(protocol, json.loads(run_python(pasted(page, "Python"), tmp_path))) == wanted
            first, *_ = block(page, "Request").split("\n")
            port = "tensorflow_serving" if protocol == "tfs" else None
            ports = httpx.get(f"{server}/page/models.json", timeout=60).json()["ports"]
            host = f"http://127.0.0.1:{ports[port]}" if port else server
            assert first.startswith(f"POST {host}/")


def test_what_is_copied_is_what_is_sent(browser: Browser, server: str) -> None:
    sent: list[str] = []
    with looking(browser, f"{server}/#request?model=detector&protocol=v2") as page:
        page.on("request", lambda request: sent.append(request.post_data or ""))
        answer = send(page)
        copied = pasted(page, "Request")
        assert copied == sent[-1]
        assert base64_text((IMAGES / "scene.jpg").read_bytes()) in copied
        assert json.loads(pasted(page, "Response")) == answer
        expect(page.get_by_role("group", name="Request", exact=True)).to_contain_text("kB of base64")


def test_it_asks_as_try_did(browser: Browser, server: str) -> None:
    with looking(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        listed = page.get_by_role("region", name="What was found").get_by_role("listitem")
        expect(listed).to_have_count(5)
        page.get_by_role("slider", name="Score at least").fill("0.96")
        expect(listed).to_have_count(3)
        page.get_by_role("button", name="Show the request").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Request")
        for protocol in ("chariot", "v2", "v1", "grps"):
            choose(page, protocol)
            assert len(labels(protocol, send(page))) == 3
        choose(page, "tfs")
        expect(page.get_by_text("TensorFlow Serving has no request parameters")).to_be_visible()
        choose(page, "grpc")
        send(page)
        assert len(json.loads(block(page, "The same as text"))) == 3


def test_whatever_is_in_a_name_or_a_question_is_only_text(browser: Browser, server: str, tmp_path: Path) -> None:
    shutil.copy(IMAGES / "shape.jpg", tmp_path / NASTY)
    with looking(browser, f"{server}/#try?model=vlm") as page:
        page.get_by_label("Choose files").set_input_files(tmp_path / NASTY)
        question = page.get_by_role("textbox", name="Question")
        question.fill(QUESTION)
        question.press("Enter")
        expect(page.locator(".answer:not([aria-busy])")).to_have_count(1)
        page.get_by_role("button", name="Show the request").click()
        for protocol in PROTOCOLS:
            choose(page, protocol)
            if protocol == "grpc":
                send(page)
                assert json.loads(block(page, "The same as text"))[0]["prompt"] == QUESTION
                output = run_python(pasted(page, "Python"), tmp_path, python_with("tritonclient"))
                assert "$HOME `id`" in output
                continue
            shells = [run_shell(pasted(page, "curl"), tmp_path, shell) for shell in ("sh", "bash")]
            for answer in (*shells, run_python(pasted(page, "Python"), tmp_path)):
                assert prompt(protocol, json.loads(answer)) == QUESTION


@pytest.mark.parametrize("name", ["a\nJSON\ntouch stolen\n.jpg", "\x1b[201~'\\\u202egpj.exe", "-n \u009b$(id).jpg"])
def test_no_name_ends_what_a_shell_reads(browser: Browser, server: str, name: str, tmp_path: Path) -> None:
    """A line of its own would end the here-document, and the rest of the name would be commands."""
    shutil.copy(IMAGES / "scene.jpg", tmp_path / name)
    picture = base64_text((IMAGES / "scene.jpg").read_bytes())
    with looking(browser, f"{server}/#try?model=detector") as page:
        expect(page.get_by_text("Drop or paste pictures here")).to_be_visible()
        page.evaluate(DROP, [name, picture])
        page.get_by_role("button", name="Show the request").click()
        for protocol in ("chariot", "grps"):
            choose(page, protocol)
            command, program = pasted(page, "curl"), pasted(page, "Python")
            seen = [each for each in command + program if each != "\n" and unicodedata.category(each) in ("Cc", "Cf")]
            assert seen == []
            answers = [json.loads(run_shell(command, tmp_path, "bash")), json.loads(run_python(program, tmp_path))]
            assert [len(labels(protocol, each)) for each in answers] == [5, 5]
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_several_pictures_go_together(browser: Browser, server: str, tmp_path: Path) -> None:
    names = ["scene.jpg", "shape.jpg"]
    for name in names:
        shutil.copy(IMAGES / name, tmp_path)
    with looking(browser, f"{server}/#try?model=detector") as page:
        page.get_by_label("Choose files").set_input_files([IMAGES / name for name in names])
        expect(page.get_by_role("group", name="Pictures", exact=True)).to_be_visible()
        page.get_by_role("button", name="Show the request").click()
        counts: dict[str, int] = {}
        for protocol in PROTOCOLS:
            choose(page, protocol)
            answer = send(page)
            if protocol == "grpc":
                continue
            shell, python = (run_shell(pasted(page, "curl"), tmp_path), run_python(pasted(page, "Python"), tmp_path))
            for each in (answer, json.loads(shell), json.loads(python)):
                found = each.get("outputs") or each.get("predictions") or each["gmap"]["s_s"]
                counts[protocol] = len(found[0]["data"] if protocol == "v2" else found)
        assert counts == dict.fromkeys(("chariot", "v2", "v1", "tfs", "grps"), 2)


@pytest.mark.parametrize(
    ("model", "values", "said"),
    [("half_plus_two", '{"x": [1, 2, 5]}', "2.5"), ("greeter", None, "text")],
)
def test_tensors_and_texts_of_tensors(
    browser: Browser, server: str, model: str, values: str | None, said: str, tmp_path: Path
) -> None:
    with looking(browser, f"{server}/#try?model={model}") as page:
        if values is not None:
            page.get_by_role("textbox", name="Tensors by name, as JSON").fill(values)
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("region", name="Outputs")).to_contain_text(said)
        page.get_by_role("button", name="Show the request").click()
        for protocol in PROTOCOLS:
            choose(page, protocol)
            answer = json.dumps(send(page))
            if protocol == "grpc":
                assert said in run_python(pasted(page, "Python"), tmp_path, python_with("tritonclient"))
                continue
            assert said in answer
            assert said in run_shell(pasted(page, "curl"), tmp_path)
            assert said in run_python(pasted(page, "Python"), tmp_path)


def test_a_protocol_that_is_chosen_before_the_models_are_known(browser: Browser, server: str) -> None:
    with looking(browser, f"{server}/#metrics") as page:
        held: list[Route] = []
        page.route("**/page/models.json", lambda route: held.append(route))
        page.goto(f"{server}/#request?model=greeter")
        button = page.get_by_role("button", name="V2 JSON", exact=True)
        button.click()
        expect(page).to_have_url(f"{server}/#request?model=greeter&protocol=v2")
        for route in held:
            route.continue_()
        expect(button).to_have_attribute("aria-pressed", "true")
        expect(page.get_by_role("group", name="Request", exact=True)).to_contain_text("/v2/models/greeter/infer")


def test_texts(browser: Browser, server: str, tmp_path: Path) -> None:
    with looking(browser, f"{server}/#try?model=text_classification") as page:
        page.get_by_role("textbox", name="Text").fill(QUESTION)
        page.get_by_label("Findings at most").fill("1")
        page.get_by_role("button", name="Show the request").click()
        for protocol in PROTOCOLS:
            choose(page, protocol)
            send(page)
            if protocol == "grpc":
                assert "label" in run_python(pasted(page, "Python"), tmp_path, python_with("tritonclient"))
                continue
            assert "label" in run_shell(pasted(page, "curl"), tmp_path)
            assert "label" in run_python(pasted(page, "Python"), tmp_path)


def test_chariot_v2_and_nothing_beside_the_main_port(browser: Browser, tmp_path: Path) -> None:
    shutil.copy(IMAGES / "scene.jpg", tmp_path)
    arguments = ("--chariot-protocol", "chariot-v2", "--no-grpc", "--no-tensorflow-serving")
    models = ("--model", str(MODELS / "detector"))
    with serving(*models, *arguments) as server, looking(browser, f"{server.address}/#request") as page:
        expect(page.get_by_role("button", name="Send")).to_be_visible()
        assert len(send(page)["output"]) == 5
        assert len(json.loads(run_shell(pasted(page, "curl"), tmp_path))["output"]) == 5
        assert len(json.loads(run_python(pasted(page, "Python"), tmp_path))["output"]) == 5
        choose(page, "tfs")
        expect(page.get_by_role("alert")).to_have_text("TensorFlow Serving's REST API is switched off here.")
        choose(page, "grpc")
        expect(page.get_by_role("alert")).to_have_text("gRPC is switched off here.")
        choose(page, "v1")
        expect(page.get_by_role("alert")).to_be_hidden()
        assert len(send(page)["predictions"][0]) == 5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_can_be_read_everywhere(browser: Browser, server: str, scheme: Scheme, size: Size, tmp_path: Path) -> None:
    with looking(browser, f"{server}/#request?model=detector", size=size, scheme=scheme) as page:
        send(page)
        page.screenshot(path=tmp_path / f"{scheme}-{size[0]}.png", full_page=True)
        fits(page, size)
        assert violations(page) == []
