"""What the page shows before its user does anything."""

from playwright.sync_api import Browser, Page, expect

from tests.browser.axe import violations
from tests.browser.looking import DESKTOP, assert_fits, box_of, open_page
from tests.browser.try_view import IMAGES, expect_drawn, expect_findings, rows

LAPTOP = (1280, 720)
PHONE = (390, 844)


def test_page_opens_with_an_answer_of_the_detector_and_samples_show_what_each_model_knows(
    browser: Browser, server: str
) -> None:
    with open_page(browser, server, size=LAPTOP) as page:
        expect_findings(page, 5)
        model = page.get_by_role("combobox", name="Model")
        expect(model).to_have_value("detector")
        names = model.locator("option").all_inner_texts()
        assert names.index("classifier") < names.index("vlm") < names.index("half_plus_two")
        expect(page.get_by_role("navigation").get_by_role("link", name="Recorded")).to_have_count(0)
        expect(page.get_by_text("Finds shapes in five colours (demo model). Knows red circle, ")).to_be_visible()
        samples = page.get_by_role("group", name="Samples").get_by_role("button")
        for model, names in (
            ("detector", ["scene.jpg", "shape.jpg"]),
            ("classifier", ["shape.jpg"]),
            ("oriented-detector", ["oriented.jpg"]),
        ):
            page.get_by_role("combobox", name="Model").select_option(model)
            # An image of the samples makes room for one that suits the model.
            expect(page.get_by_role("group", name=f"{names[0]} with results")).to_be_visible()
            expect(samples).to_have_count(len(names))
            assert [button.get_attribute("title") for button in samples.all()] == names
        page.get_by_label("Choose files").set_input_files(IMAGES / "scene.jpg")
        page.get_by_role("combobox", name="Model").select_option("detector")
        expect_findings(page, 5)
        page.get_by_role("combobox", name="Model").select_option("oriented-detector")
        expect(page.get_by_role("group", name="scene.jpg with results")).to_be_visible()


def test_ten_results_and_two_images_with_their_controls_fit_a_laptop(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#try?model=detector&sample=scene.jpg&score=0.05", size=LAPTOP) as page:
        expect_findings(page, 10)
        assert max(rows(page).evaluate_all(BOTTOMS)) <= LAPTOP[1]
        page.get_by_label("Choose files").set_input_files([IMAGES / "scene.jpg", IMAGES / "shape.jpg"])
        expect(page.get_by_role("button", name="Next")).to_be_visible()
        bottom = page.get_by_role("group", name="Zoom").evaluate("group => group.getBoundingClientRect().bottom")
        assert bottom <= LAPTOP[1]
        page.get_by_role("button", name="Add a second model").click()
        stages = page.locator(".stage")
        expect(stages).to_have_count(2)
        expect_drawn(page)
        assert all(bottom <= LAPTOP[1] for bottom in stages.evaluate_all(BOTTOMS))


BOTTOMS = "all => all.map(element => element.getBoundingClientRect().bottom)"


def test_header_has_one_line_and_texts_do_not_overlap(scene: Page) -> None:
    for width, height in ((820, 900), (920, 900), DESKTOP):
        scene.set_viewport_size({"width": width, "height": height})
        header = box_of(scene.get_by_role("banner"))
        model = box_of(scene.get_by_role("combobox", name="Model"))
        about = box_of(scene.get_by_text("Finds shapes in five colours"))
        assert header["height"] < 56
        assert model["x"] + model["width"] <= about["x"]
        assert about["height"] < 24
        assert_fits(scene, (width, height))


def test_phone_has_a_compact_header(browser: Browser, server: str) -> None:
    with open_page(browser, f"{server}/#models", size=PHONE) as page:
        assert box_of(page.get_by_role("banner"))["height"] < 56
        views = page.get_by_role("navigation")
        views.get_by_role("button", name="Models").click()
        assert violations(page) == []
        views.get_by_role("link", name="Try").click()
        expect(views.get_by_role("link")).to_have_count(0)
        expect(views.get_by_role("button", name="Try")).to_have_attribute("aria-expanded", "false")
        page.get_by_role("button", name="Add a second model").click()
        expect(page.get_by_text("only first").first).to_be_visible()
        expect_drawn(page)
        first, second = map(box_of, page.locator(".stage").all())
        assert first["y"] + first["height"] < second["y"]
        assert_fits(page, PHONE)
