"""Reports as text, values for JSON and pages, and their escaping of hostile text."""

import io
import json

from rich.console import Console

from app.report import (
    AnnotatedImage,
    Chart,
    ChartLine,
    Figure,
    Mark,
    Outline,
    Report,
    Table,
    format_cell,
    html_report,
    plain_tables,
    print_report,
    to_json,
)

HOSTILE = "<b>[red]\x1b[2J"
TABLE = Table(
    title="Tests", columns=("test", "p", "verdict"), rows=((HOSTILE, 0.00001, Mark("drifted", "bad")), ("b", None, "-"))
)
REPORT = Report(
    title=f"Drift {HOSTILE}",
    summary=("1 of 2 measured.",),
    figures=(Figure(name="a", title=HOSTILE, value=0.5), Figure(name="b", title="second", value=None)),
    charts=(
        Chart(
            title="Sizes",
            x="pixels",
            y="share",
            lines=(ChartLine(name="now", xs=(100.0, 200.0), ys=(0.0, 1.0), filled=True),),
            note="mean 150",
            x_range=(100.0, 200.0),
        ),
    ),
    tables=(TABLE, Table(title="Counts", columns=("", "cat"), rows=(("cat", 3),), matrix=True, printed=False)),
    images=(
        AnnotatedImage(
            name="a.png",
            description="missed",
            jpeg=b"jpeg",
            width=240,
            height=100,
            outlines=(Outline(kind="missed", label=HOSTILE, rings=[[(10, 10), (20, 10), (20, 30)]]),),
        ),
        AnnotatedImage(name="gone.png", description="no image"),
    ),
    images_title="The worst images",
    notes=(HOSTILE,),
)


def test_text_has_the_first_figures_printed_tables_and_no_control_characters() -> None:
    written = io.StringIO()
    print_report(REPORT, Console(file=written, width=120), max_figures=1)
    text = written.getvalue()
    assert "\x1b" not in text
    assert r"<b>[red]\x1b[2J" in text
    assert all(part in text for part in ("1 of 2 measured.", "0.5000", "1.0e-05", "drifted"))
    assert not any(part in text for part in ("second", "Counts", "a.png"))


def test_page_is_self_contained_and_escaped() -> None:
    page = html_report(REPORT).decode()
    assert "<b>[red]" not in page
    assert "&lt;b&gt;[red]" in page
    assert '<span class="bad">drifted</span>' in page
    assert 'class="number right" style="--share: 1.000">3</td>' in page
    assert "data:image/jpeg;base64,anBlZw==" in page
    assert 'd="M10.0 10.0L20.0 10.0L20.0 30.0Z"' in page
    # The ends of the line are the corners of the chart.
    assert 'points="44.0,260.0 408.0,12.0 "' in page
    assert page.count("<image ") == 1
    assert all(part not in page for part in ("<script", "http://", "https://"))


def test_values_for_json_have_rows_by_column() -> None:
    assert json.loads(to_json(plain_tables([TABLE])))[0]["rows"][0] == {
        "test": HOSTILE,
        "p": 1e-5,
        "verdict": "drifted",
    }


def test_cells_have_four_digits() -> None:
    assert [format_cell(cell) for cell in (0.12345, 0.0, 12.345, 3, None, "a")] == [
        "0.1235",
        "0.0000",
        "12.35",
        "3",
        "-",
        "a",
    ]
