"""Run the examples of docs/recording.md for DuckDB and pandas unchanged, on an export of recordings."""

import re
import subprocess
from pathlib import Path

from app.plugins.recording.export.writing import export_inferences
from app.plugins.recording.inference import RecordedInference
from metadata.request import MetadataEntry
from tests.support.servers.client_environments import python_with
from tests.support.servers.server_process import ROOT

_PAGE = (ROOT / "docs" / "recording.md").read_text()
_EXAMPLES = re.findall(r"^```(?:sql|python)\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)
_COUNT, _OTHER, _PLACES, _PANDAS = _EXAMPLES
_NOVEMBER_5 = 1_793_836_800_000_000
_DAY = 86_400_000_000


_METADATA = (
    [MetadataEntry("camera", "str", "the roof"), MetadataEntry("latitude", "float", 48.14)],
    [MetadataEntry("pose", "dict", {"yaw": 2}), MetadataEntry("camera", "str", "gate")],
    [MetadataEntry("latitude", "float", 48.14), MetadataEntry("longitude", "float", 11.58)],
    [MetadataEntry("latitude", "int", 50), MetadataEntry("longitude", "float", 11.58)],
)


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
            metadata=_METADATA[index],
        )
        for index, (started, label, score) in enumerate([*found, (_NOVEMBER_5 - 30 * _DAY, "car", 0.1)])
    ]
    export_inferences([inferences], folder / "found.parquet", "parquet")
    command = [str(python_with("analysis")), "-c", code]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def test_duckdb_counts_labels(tmp_path: Path) -> None:
    code = f"import duckdb\nprint(sorted(duckdb.sql({_COUNT!r}).fetchall()))"
    assert run(code, tmp_path) == "[('detector', 'car', 2), ('detector', 'dog', 1)]"


def test_duckdb_finds_parts_of_texts_members_and_places(tmp_path: Path) -> None:
    code = f"import duckdb\nprint(sorted(duckdb.sql({_OTHER!r}).fetchall()))"
    assert run(code, tmp_path) == "[('a-0-0',), ('a-1-0',)]"
    run(f"import duckdb\nduckdb.sql({_PLACES!r})", tmp_path)
    assert (tmp_path / "munich.csv").read_text().splitlines() == ["id,latitude,longitude", "a-2-0,48.14,11.58"]


def test_pandas_averages_scores(tmp_path: Path) -> None:
    statements, _, expression = _PANDAS.strip().rpartition("\n")
    assert run(f"{statements}\nprint(({expression}).to_dict())", tmp_path) == "{'car': 0.5, 'dog': 0.25}"
