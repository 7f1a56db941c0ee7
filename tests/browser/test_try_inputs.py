"""Inputs of the page's view Try: samples, files, dropped images, the camera, and files that are no images."""

import re
import shutil
from pathlib import Path

import PIL.Image
import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.looking import open_page
from tests.browser.try_view import (
    IMAGES,
    assert_drawn,
    expect_findings,
    give_file,
    infer,
    pixel,
    rows,
)
from tests.support.data.images import encode_image, rectangle

HTML_NAME = "<img src=x onerror=alert(1)>.jpg"


def test_sample_can_be_chosen_again_and_is_named_by_the_address(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=detector&sample=scene.jpg") as page:
        expect_findings(page, 5)
        page.get_by_label("Choose files").set_input_files(IMAGES / "photo.jpg")
        expect(page.get_by_role("group", name="photo.jpg with results")).to_be_visible()
        page.get_by_role("button", name="Sample scene.jpg").click()
        expect_findings(page, 5)
        page.get_by_role("button", name="Sample shape.jpg").click()
        expect_findings(page, 1)
        page.go_back()
        expect_findings(page, 5)
        page.go_forward()
        expect_findings(page, 1)
        # The address names a sample that is still loading.
        held_routes: list[Route] = []
        page.route("**/samples/scene.jpg", lambda route: held_routes.append(route))
        page.get_by_role("button", name="Sample scene.jpg").click()
        page.get_by_role("slider", name="Confidence threshold").fill("0.6")
        expect(page).to_have_url(re.compile("sample=scene.jpg&score=0.6$"))
        for route in held_routes:
            route.continue_()
        expect_findings(page, 5)


def test_images_are_accepted_by_drop_and_paste(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=detector") as page:
        expect(page.get_by_role("button", name="Camera")).to_be_visible()
        for event, image, number in (("drop", "shape.jpg", 1), ("paste", "scene.jpg", 5)):
            give_file(page, event, HTML_NAME, image)
            expect_findings(page, number)
            expect(page.get_by_role("group", name=f"{HTML_NAME} with results")).to_be_visible()
            assert page.locator("main img[src='x']").count() == 0


def test_image_is_taken_by_the_camera(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=classifier") as page:
        page.context.grant_permissions(["camera"])
        # A user who is quicker than the first frame.
        page.evaluate(
            "() => { const take = () => document.querySelector('dialog[open] .primary')?.click();"
            "new MutationObserver(take).observe(document.body, { subtree: true, attributeFilter: ['open'] }) }"
        )
        page.get_by_role("button", name="Camera").click()
        expect_findings(page, 20)
        expect(page.get_by_role("group", name="camera.jpg with results")).to_be_visible()


def test_denied_camera_is_reported_although_a_sample_arrives_later(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#models") as page:
        samples: list[Route] = []
        page.route("**/samples/**", lambda route: samples.append(route))
        page.evaluate(
            "() => { const no = async () => { throw new DOMException('Permission denied') };"
            "navigator.mediaDevices.getUserMedia = no; location.hash = 'try?model=classifier' }"
        )
        page.get_by_role("button", name="Camera").click()
        error = page.get_by_text("The camera cannot be used: Permission denied")
        expect(error).to_be_visible()
        page.route("**/samples/**", lambda route: route.continue_())
        for sample in samples:
            sample.continue_()
        expect(rows(page).first).to_be_visible()
        expect(error).to_be_visible()


def test_camera_stops_when_the_view_is_left_before_it_opens(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=classifier") as page:
        page.context.grant_permissions(["camera"])
        page.evaluate(
            "() => { const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);"
            "navigator.mediaDevices.getUserMedia = async (options) => {"
            "window.camera = await open(options); location.hash = 'models';"
            "while (document.querySelector('.image-list')) await new Promise((resolve) => setTimeout(resolve, 10));"
            "return window.camera; } }"
        )
        page.get_by_role("button", name="Camera").click()
        expect(page.get_by_role("heading", level=1, name="Models")).to_be_visible()
        page.wait_for_function("() => window.camera.getTracks().every((track) => track.readyState === 'ended')")


def test_server_error_is_shown_for_an_invalid_image_and_other_files_are_skipped(
    browser: Browser, server: str, tmp_path: Path
) -> None:
    path = tmp_path / HTML_NAME
    path.write_bytes(b"not a picture")
    with open_page(browser, f"{server}/#try?model=detector", expect_errors=True) as page:
        expect_findings(page, 5)
        page.get_by_label("Choose files").set_input_files(path)
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text(f"{HTML_NAME} is not an image. Supported: JPEG, PNG, WebP, BMP, TIFF, GIF.")
        expect(alert.locator("pre")).to_be_hidden()
        alert.get_by_text("Details").click()
        expect(alert.locator("pre")).to_contain_text("got 13 bytes that begin with 6e 6f 74")
        # The old answer does not stay beside the error.
        expect_findings(page, 0)
        more = tmp_path / "more.jpg"
        shutil.copy(path, more)
        page.get_by_label("Choose files").set_input_files(
            [IMAGES.parent / "models" / "demo.txt", IMAGES / "shape.jpg", more]
        )
        expect(page.get_by_role("group", name="shape.jpg with results")).to_be_visible()
        expect_findings(page, 1)
        expect(alert).to_be_hidden()
        expect(page.get_by_text("Skipped 1 other file. 1 answered, 1 failed")).to_be_visible()
        page.get_by_role("button", name="Next").click()
        expect(alert).to_contain_text("more.jpg is not an image. Supported: JPEG")
        page.get_by_role("button", name="Next").click()
        expect(alert).to_be_hidden()


def test_large_image_is_shown(browser: Browser, server: str, tmp_path: Path) -> None:
    pixels = rectangle(3840, 2160, (1000, 500, 2000, 1500))
    path = tmp_path / "large.png"
    path.write_bytes(encode_image(pixels))
    with open_page(browser, f"{server}/#try?model=classifier") as page:
        page.get_by_label("Choose files").set_input_files(path)
        expect(page.get_by_role("group", name="large.png with results")).to_be_visible()
        expect_findings(page, 20)
        width, height = page.evaluate("['width', 'height'].map(side => document.querySelector('canvas.image')[side])")
        scale = min(width / 3840, height / 2160)
        left, top = (width - 3840 * scale) / 2, (height - 2160 * scale) / 2
        for (x, y), bright in (((1500, 1000), 255), ((990, 1000), 0), ((1010, 1000), 255), ((2010, 1000), 0)):
            colour = pixel(page, "image", round(left + x * scale), round(top + y * scale))
            assert abs(colour[0] - bright) < 60, (x, y)


def test_rotated_image_and_one_that_the_browser_cannot_show_are_upright(
    browser: Browser, server: str, tmp_path: Path
) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    with PIL.Image.open(IMAGES / "scene.jpg") as upright:
        upright.transpose(PIL.Image.Transpose.ROTATE_90).save(tmp_path / "sideways.jpg", quality=95, exif=exif)
        upright.save(tmp_path / "scene.tiff")
        expected = upright.convert("RGB").getpixel((320, 240))
    with open_page(browser, f"{server}/#try?model=detector") as page:
        for name in ("sideways.jpg", "scene.tiff"):
            records = infer(server, "detector", (tmp_path / name).read_bytes())
            page.get_by_label("Choose files").set_input_files(tmp_path / name)
            expect(page.get_by_role("group", name=f"{name} with results")).to_be_visible()
            expect_findings(page, len(records))
            assert_drawn(page, "detector", records, 640, 480)
            size = page.evaluate("['width', 'height'].map(side => document.querySelector('canvas.image')[side])")
            assert isinstance(expected, tuple)
            assert pixel(page, "image", size[0] / 2, size[1] / 2)[:3] == pytest.approx(expected, abs=12)
