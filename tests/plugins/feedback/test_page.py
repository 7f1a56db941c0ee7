"""The round of labelling in docs/feedback.md works as it is written."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import open_recordings
from tests.support.servers.server_process import ROOT, run_server

PAGE = (ROOT / "docs" / "feedback.md").read_text()
ROUND = PAGE[PAGE.index("## A round of labelling") : PAGE.index("## Truths")]
ADDRESS = "http://127.0.0.1:8080"


@pytest.mark.slow
def test_round_of_labelling_works_as_written(tmp_path: Path) -> None:
    serve, *blocks = re.findall(r"^```sh\n(.*?)^```$", ROUND, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    words = shlex.split(serve)
    assert words[:2] == ["charioteer", "serve"]
    with run_server(*words[2:], environment=environment, cwd=tmp_path) as server:
        for block in blocks:
            script = block.replace(ADDRESS, server.address)
            completed = subprocess.run(
                ["sh", "-e"], input=script, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
            )
            assert completed.returncode == 0, completed.stdout + completed.stderr
    labels = json.loads((tmp_path / "labels.json").read_text())
    labelled = open_recordings(str(tmp_path / "recorded.db")).page(InferenceQuery(truth="yes"), 10).inferences
    assert {inference.id for inference in labelled} == {image["inference"] for image in labels["images"]}
    assert labelled
    assert all(inference.truth and inference.truth.verdict == "right" for inference in labelled)
    assert (tmp_path / "training" / "data.yaml").is_file()
    assert "detector" in (tmp_path / "report.html").read_text()
