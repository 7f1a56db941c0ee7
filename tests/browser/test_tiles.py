"""The view Try shows the tiles of an image."""

from playwright.sync_api import Browser, expect

from tests.browser.looking import box_of, open_page
from tests.browser.try_view import IMAGES, expect_drawn, pixel


def test_try_shows_the_tiles_of_every_image_and_sends_their_size(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=detector&sample=photo.jpg") as page:
        expect(page.get_by_role("group", name="photo.jpg with results")).to_be_visible()
        page.get_by_label("Choose files").set_input_files([IMAGES / "photo.jpg", IMAGES / "scene.jpg"])
        expect(page.get_by_text("2 answered in")).to_be_visible()
        page.get_by_text("More", exact=True).click()
        with page.expect_request(lambda request: '"tile":192' in (request.post_data or "")):
            page.get_by_label("Tile (pixels)").fill("192")
            page.get_by_label("Tile (pixels)").press("Tab")
        expect(page.get_by_text("photo.jpg (")).to_contain_text("is cut into")
        page.get_by_role("button", name="Next").click()
        expect(page.get_by_text("scene.jpg (640 x 480) is cut into 12 tiles")).to_be_visible()
        page.get_by_role("button", name="1:1, actual size").click()
        expect_drawn(page)
        stage = box_of(page.locator(".stage"))
        # The second column of tiles begins at 149.
        left, top = (stage["width"] - 2 - 640) / 2, (stage["height"] - 2 - 480) / 2
        colours = [sum(pixel(page, "image", left + 149 + shift, top + 60)[:3]) for shift in (-2, -1, 0, 1)]
        assert max(colours) - min(colours) > 250
