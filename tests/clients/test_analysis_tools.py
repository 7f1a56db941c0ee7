"""Run the examples of docs/recording.md for DuckDB and pandas unchanged, on an export of recordings."""

import re
import subprocess
from pathlib import Path

from app.plugins.recording.export.writing import export
from app.plugins.recording.inference import RecordedInference
from tests.support.servers.client_environments import python_with
from tests.support.servers.server_process import ROOT

_PAGE = (ROOT / "docs" / "recording.md").read_text()
_EXAMPLES = dict(re.findall(r"^```(sql|python)\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL))
_NOVEMBER_5 = 1_793_836_800_000_000
_DAY = 86_400_000_000


def run(code: str, folder: Path) -> str:
    """Return what `code` prints in a folder with an export: 3 detections since November, and one before."""
    found = [(_NOVEMBER_5, "car", 0.5), (_NOVEMBER_5, "car", 0.9), (_NOVEMBER_5, "dog", 0.25)]
    inferences = [
        RecordedInference(
            id=f"a-{index}-0",
            protocol="v2",
            model="detector",
            started=started,
            duration=1,
            records=[{"label": label, "score": score}],
        )
        for index, (started, label, score) in enumerate([*found, (_NOVEMBER_5 - 30 * _DAY, "car", 0.1)])
    ]
    export([inferences], folder / "found.parquet", "parquet")
    command = [str(python_with("analysis")), "-c", code]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def test_duckdb_counts_labels(tmp_path: Path) -> None:
    code = f"import duckdb\nprint(sorted(duckdb.sql({_EXAMPLES['sql']!r}).fetchall()))"
    assert run(code, tmp_path) == "[('detector', 'car', 2), ('detector', 'dog', 1)]"


def test_pandas_averages_scores(tmp_path: Path) -> None:
    statements, _, expression = _EXAMPLES["python"].strip().rpartition("\n")
    assert run(f"{statements}\nprint(({expression}).to_dict())", tmp_path) == "{'car': 0.5, 'dog': 0.25}"
