"""Results of the page's view Try: shapes, bars, texts and tensors equal the server's answers."""

import re

import PIL.Image
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.looking import open_page
from tests.browser.try_view import HELD_IMAGES, IMAGES, assert_drawn, expect_findings, infer, rows

SAMPLES = {"detector": "scene.jpg", "oriented-detector": "oriented.jpg", "segmenter": "scene.jpg"}


def slide(page: Page, name: str, value: float) -> None:
    page.get_by_role("slider", name=name).fill(str(value))


def test_shapes_are_drawn_where_the_answer_has_them(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#models") as page:
        for model, sample in SAMPLES.items():
            records = infer(server, model, (IMAGES / sample).read_bytes())
            assert len(records) > 2
            page.goto(f"{server}/#try?model={model}&sample=photo.jpg")
            # The buttons move when the first image appears.
            expect(page.get_by_role("group", name="photo.jpg with results")).to_be_visible()
            page.get_by_role("button", name=f"Sample {sample}").click()
            # The answer may arrive before the image is decoded, which fits the image again.
            expect(page.get_by_role("group", name=f"{sample} with results")).to_be_visible()
            expect_findings(page, len(records))
            expect(page).to_have_url(re.compile(f"#try\\?model={model}&sample={sample}"))
            texts = [f"{record['label']}{100 * record['score']:.1f} %" for record in records]
            expect(rows(page).locator("> :first-child")).to_have_text(texts)
            with PIL.Image.open(IMAGES / sample) as image:
                width, height = image.size
            assert_drawn(page, model, records, width, height)


def test_classes_are_shown_as_bars(browser: Browser, server: str) -> None:
    records = infer(server, "classifier", (IMAGES / "shape.jpg").read_bytes())
    with open_page(browser, f"{server}/#try?model=classifier&sample=shape.jpg") as page:
        expect_findings(page, 20)
        expect(rows(page).first).to_contain_text(f"{records[0]['label']}{100 * records[0]['score']:.1f} %")
        widths = page.eval_on_selector_all(".bar > span", "all => all.map(bar => parseFloat(bar.style.width))")
        assert widths == pytest.approx([100 * record["score"] for record in records], abs=0.01)
        slide(page, "Confidence threshold", 0.5)
        expect_findings(page, 1)
        expect(page.get_by_role("button", name="PNG")).to_have_count(0)


def test_sliders_filter_like_the_server(browser: Browser, server: str) -> None:
    requests: list[str] = []
    with open_page(browser, f"{server}/#models") as page:
        page.on("request", lambda request: requests.append(request.url) if "/infer" in request.url else None)
        for model in ("detector", "oriented-detector"):
            image = (IMAGES / SAMPLES[model]).read_bytes()
            page.goto(f"{server}/#try?model={model}&sample={SAMPLES[model]}")
            expect(page.get_by_role("group", name=f"{SAMPLES[model]} with results")).to_be_visible()
            expect(rows(page).first).to_be_visible()
            requests.clear()
            page.get_by_text("More", exact=True).click()
            for score, iou in ((0.1, 0.45), (0.05, 0.9), (0.05, 0.6), (0.2, 0.3), (0.9, 0.3), (0.05, 0.0)):
                slide(page, "Confidence threshold", score)
                if iou != 0.45:
                    with page.expect_response("**/infer"):
                        slide(page, "NMS IoU threshold", iou)
                expected = infer(server, model, image, score_threshold=score, iou_threshold=iou)
                expect_findings(page, len(expected))
                expect(rows(page).locator(".label")).to_have_text([record["label"] for record in expected])
            # Only the IoU slider sends requests, when it stops.
            assert len(requests) == 5
            slide(page, "NMS IoU threshold", 0.9)
            page.get_by_label("Max detections").fill("2")
            page.get_by_label("Max detections").press("Tab")
            expect_findings(page, 2)


def test_image_decoded_after_its_view_was_left_leaves_the_address(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#models") as page:
        page.add_init_script(HELD_IMAGES)
        page.goto("about:blank")
        page.goto(f"{server}/#try?model=detector&sample=scene.jpg")
        expect(rows(page).first).to_be_visible()
        page.get_by_role("navigation").get_by_role("link", name="Models").click()
        expect(page.get_by_role("heading", name="Models", level=1)).to_be_visible()
        page.evaluate("window.release()")
        # The address is saved after 150 ms, before this view has the models of the server for the second time.
        for _ in range(2):
            page.wait_for_event("response", lambda response: response.url.endswith("/page/models.json"))
        expect(page).to_have_url(f"{server}/#models")


def test_empty_result_above_the_threshold_is_reported_and_the_threshold_is_in_the_address(
    browser: Browser, server: str
) -> None:
    with open_page(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        expect(rows(page).first).to_be_visible()
        slide(page, "Confidence threshold", 1)
        expect_findings(page, 0)
        expect(page.get_by_text("Nothing scores that high.")).to_be_visible()
        expect(page).to_have_url(f"{server}/#try?model=detector&sample=scene.jpg&score=1")
        page.get_by_role("button", name="Show the best score, 98.2 %").click()
        expect_findings(page, 1)
        expect(page).to_have_url(f"{server}/#try?model=detector&sample=scene.jpg&score=0.98")
        page.reload()
        expect_findings(page, 1)
        # A view that is chosen while the address is saved: the timer is due before the event of the new address.
        page.get_by_label("Confidence threshold").evaluate(
            """slider => {
                slider.value = 0.9;
                slider.dispatchEvent(new Event("input", { bubbles: true }));
                const { port1, port2 } = new MessageChannel();
                port1.onmessage = () => { location.hash = "#models"; };
                port2.postMessage(null);
                for (const start = performance.now(); performance.now() - start < 400; );
            }"""
        )
        expect(page.get_by_role("heading", name="Models", level=1)).to_be_visible()
        expect(page).to_have_url(re.compile("#models$"))


def test_answers_are_streamed_in_chunks(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=vlm") as page:
        expect(page.get_by_role("group", name="Zoom")).to_be_visible()
        page.get_by_label("Choose files").set_input_files([IMAGES / "shape.jpg", IMAGES / "photo.jpg"])
        page.get_by_role("button", name="Remove all").click()
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.get_by_role("alert")).to_have_text("Add an image first.")
        expect(page.get_by_role("group", name="Zoom")).to_be_hidden()
        page.get_by_role("button", name="Sample shape.jpg").click()
        expect(page.get_by_role("group", name="Zoom")).to_be_visible()
        question = page.get_by_role("textbox", name="Question")
        talk = page.get_by_role("log", name="Questions and answers")
        page.evaluate(
            "() => { window.chunks = [];"
            "const note = node => node.nodeType === 3 && window.chunks.push(node.data);"
            "new MutationObserver(all => all.forEach(mutation => mutation.addedNodes.forEach(note)))"
            ".observe(document.querySelector('.dialogue'), { childList: true, subtree: true }) }"
        )
        for prompt, expected in (("What shape is in the picture?", "star"), ("What color is the shape?", "blue")):
            question.fill(prompt)
            question.press("Enter")
            expect(talk.get_by_role("listitem").last).to_have_text(f"{prompt}{expected}")
        question.fill("What is in the picture?")
        question.press("Enter")
        expect(talk.get_by_role("listitem")).to_have_count(3)
        expect(talk.get_by_role("listitem").last).to_contain_text("a blue star")
        expect(talk.locator("[aria-busy]")).to_have_count(0)
        assert page.evaluate("chunks") == ["star", "blue", "a", " blue", " star"]
        # Nothing explains the model.
        expect(page.get_by_role("button", name=re.compile("Explain"))).to_have_count(0)


def test_list_parameters_are_sent_without_empty_items_and_answers_are_stopped(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=vlm") as page:
        page.get_by_text("More", exact=True).click()
        page.get_by_label("Stop sequences").fill("red, ,green,")
        # A text field cannot hold them.
        expect(page.get_by_label("messages")).to_have_count(0)
        expect(page.locator(".stage")).to_be_visible()
        with page.expect_request("**/chat/completions") as waiting:
            page.get_by_role("button", name="Ask").click()
        assert (waiting.value.post_data_json or {})["stop"] == ["red", "green"]
        expect(page.get_by_role("log")).to_contain_text("star")
        page.route("**/chat/completions", lambda route: None)
        page.get_by_role("button", name="Ask").click()
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("log")).to_contain_text("(stopped)")
        expect(page.get_by_role("button", name="Ask")).to_be_visible()


def test_generated_text_is_shown(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=text_generation") as page:
        page.get_by_role("textbox", name="Text").fill("<b>Once</b>")
        page.get_by_role("textbox", name="Text").press("Control+Enter")
        expect(page.get_by_role("log")).to_contain_text("<b>Once</b>")
        expect(page.locator(".answer")).not_to_have_text("")
        page.get_by_role("textbox", name="Text").fill(" ")
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("alert")).to_have_text("Enter a text first.")


def test_tensors_are_entered_and_shown(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=half_plus_two", expect_errors=True) as page:
        box = page.get_by_role("textbox", name="Tensors by name, as JSON")
        expect(box).to_have_value('{"x":[1,1]}')
        box.fill('{"x": [1, 2, 5]}')
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("group", name="y", exact=True)).to_have_text("[2.5,3,4.5]")
        for wrong, message in (
            ("{", "not valid JSON"),
            ("[1]", "an object with a list for each input: x"),
            ('{"x": 3}', "a list for each input: x"),
            ('{"x": ["a"]}', "inputs[0].data"),
        ):
            box.fill(wrong)
            page.get_by_role("button", name="Run").click()
            expect(page.get_by_role("alert")).to_contain_text(message)
            expect(page.get_by_role("group", name="y", exact=True)).to_have_count(0)
