"""Tables on terminals of any width, and progress bars."""

import io
import os
import sys

import pytest
from rich.console import Console

from app.core.cli.terminal import printable, prints_to_stderr, progress, stop, table


def test_table_keeps_all_text_in_a_narrow_terminal() -> None:
    written = io.StringIO()
    names = table("model", "path", title="models")
    names.add_row("oriented-detector", "/v2/models/m-oriented-detector/infer")
    Console(file=written, width=30).print(names)
    cells = [line.strip("│\n").split("│") for line in written.getvalue().splitlines() if line.startswith("│")]
    assert ["".join(part.strip() for part in parts) for parts in zip(*cells, strict=True)] == [
        "oriented-detector",
        "/v2/models/m-oriented-detector/infer",
    ]


def test_title_wider_than_its_table_stays_on_one_line() -> None:
    written = io.StringIO()
    Console(file=written, width=60).print(table("file", title="a-folder/with-a-long-name/model.tar.gz"))
    assert written.getvalue().startswith("a-folder/with-a-long-name/model.tar.gz\n")


def test_markup_and_control_characters_are_printed_as_they_are() -> None:
    written = io.StringIO()
    terminal = Console(file=written, width=60)
    names = table("[b]name", title="[/x]\x1b[2J")
    names.add_row(printable("[red]a\x07\x1b]0;t"))
    terminal.print(names)
    assert "[/x]\\x1b[2J" in written.getvalue()
    assert "[red]a\\x07\\x1b]0;t" in written.getvalue()
    assert "\x1b" not in written.getvalue()
    assert printable("1\n2\xa0\u200d") == "1\n2\xa0\u200d"


def test_progress_without_a_terminal_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("Reading [models]") as bar:
        bar.show(1, 2)
        bar.advance()
    assert capsys.readouterr().err.strip() == ""


def test_prints_to_stderr_keeps_standard_output_for_the_results(capfd: pytest.CaptureFixture[str]) -> None:
    with prints_to_stderr():
        sys.stdout.write("by Python\n")
        os.write(1, b"by a child process\n")
    sys.stdout.write("result\n")
    output, messages = capfd.readouterr()
    assert output == "result\n"
    assert sorted(messages.splitlines()) == ["by Python", "by a child process"]


def test_stop_prints_the_reason_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        stop("there is no model")
    assert raised.value.code == 2
    assert capsys.readouterr().err == "charioteer: there is no model\n"
