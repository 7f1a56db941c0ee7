"""The README's example, run as it is written."""

import json
import re
import shutil
import subprocess

import pytest

from tests.server_process import ROOT, serving

README = (ROOT / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the example needs curl")
def test_the_example_request_is_answered_as_the_readme_shows() -> None:
    found = re.search(r"```sh\n(curl .*?)```", README, re.DOTALL)
    assert found
    with serving() as server:
        script = found[1].replace("http://127.0.0.1:8080", server.address)
        done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    (output,) = json.loads(done.stdout)["outputs"]
    shown = [
        json.loads(line.strip().removesuffix(",")) for line in re.findall(r"^ +\{\"label\".*$", README, re.MULTILINE)
    ]
    assert len(shown) == 2
    for item, expected in zip(output["data"][0], shown, strict=False):
        assert item.pop("label") == expected.pop("label")
        assert item == pytest.approx(expected, abs=0.5)
    assert json.loads(output["parameters"]["metadata"])[0]["value"] == "north"


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for command in ("serve", "test", "bench", "evaluate-fixtures"):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)
    assert "`make serve`" in README
    assert "`make test`" in README
