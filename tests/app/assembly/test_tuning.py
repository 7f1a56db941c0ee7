"""What serves a model best is measured, chosen with care, and written without losing anything."""

import json
from pathlib import Path

import pytest

from app.assembly.discovery import model_at
from app.assembly.tuning import Measured, Way, best_of, measured, ways, write_settings
from app.settings.model import SETTINGS_FILE, BatchingSettings, ModelError, OnnxRuntimeSettings, read_settings
from tests.support.pictures import encoded, rectangle

MODELS = Path(__file__).parents[3] / "fixtures" / "models"


def found(batch: int, *, rate: float, lone: float = 5.0) -> Measured:
    return Measured(way=Way(batch), rate=rate, p50=1, p99=2, lone=lone, cpu=1)


def test_every_combination_is_tried_the_plainest_first() -> None:
    assert ways([4, 2], [2], 3.0) == [
        Way(1, 0, 1),
        Way(2, 3, 1),
        Way(4, 3, 1),
        Way(1, 0, 2),
        Way(2, 3, 2),
        Way(4, 3, 2),
    ]


def test_the_best_is_what_is_wanted() -> None:
    tried = [found(1, rate=100, lone=5), found(4, rate=150, lone=6), found(2, rate=90, lone=4)]
    assert best_of(tried, "throughput").way.batch == 4
    assert best_of(tried, "latency").way.batch == 2


def test_the_plainest_wins_where_little_is_gained() -> None:
    assert best_of([found(1, rate=100), found(4, rate=104)], "throughput").way.batch == 1


@pytest.mark.parametrize("name", ["detector", "half_plus_two"])
def test_a_model_is_served_in_every_way(name: str) -> None:
    (source,) = model_at(MODELS / name)
    tried = ways([2], [1], 1.0)
    rows = list(measured(source, tried, encoded(rectangle()), 2, 0.05))
    assert [each.way for each in rows] == tried
    assert all(each.rate > 0 and 0 < each.p50 <= each.p99 and each.lone > 0 and each.cpu > 0 for each in rows)


def test_settings_keep_what_else_is_in_them(tmp_path: Path) -> None:
    own = {"labels": ["a", "b"], "onnxruntime": {"instances": 2}, "parameters": {"score_threshold": 0.25}}
    (tmp_path / SETTINGS_FILE).write_text(json.dumps(own))
    write_settings(tmp_path, Way(8, 2.5, 2))
    settings = read_settings(tmp_path)
    assert settings.batching == BatchingSettings(max_size=8, max_delay_ms=2.5)
    assert settings.onnxruntime == OnnxRuntimeSettings(instances=2, threads=2)
    assert settings.labels == ("a", "b")
    assert settings.parameters == {"score_threshold": 0.25}
    assert [each.name for each in tmp_path.iterdir()] == [SETTINGS_FILE]


def test_the_plainest_way_leaves_no_trace(tmp_path: Path) -> None:
    write_settings(tmp_path, Way(8, 2.5, 2))
    file = write_settings(tmp_path, Way())
    assert json.loads(file.read_text()) == {}


def test_settings_that_cannot_be_read_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        write_settings(tmp_path, Way(2))
    assert (tmp_path / SETTINGS_FILE).read_text() == "{"
