"""What the scripts that run in clients' environments share; of this repository they can import nothing else."""

import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[2] / "fixtures" / "images"

SCENE = (IMAGES / "scene.jpg").read_bytes()
SHAPE = (IMAGES / "shape.jpg").read_bytes()
ORIENTED = (IMAGES / "oriented.jpg").read_bytes()

PICTURES = {
    "classifier": SHAPE,
    "detector": SCENE,
    "oriented-detector": ORIENTED,
    "segmenter": SCENE,
    "vlm": SHAPE,
}
"""A picture for each fixture model with a task."""

TENSOR_MODELS = ("greeter", "half_plus_three", "half_plus_two")


def run(names: dict[str, Any], *arguments: object) -> None:
    """Call every function in `names` called ``check_...``, with `arguments`; exit with 1 when any of them fails."""
    checks: list[Callable[..., object]] = [each for name, each in names.items() if name.startswith("check_")]
    failed = 0
    for check in checks:
        try:
            check(*arguments[: len(inspect.signature(check).parameters)])
        except Exception:  # noqa: BLE001  whatever a client raises is what this is about
            failed += 1
            sys.stderr.write(f"{check.__name__} failed\n{traceback.format_exc()}\n")
    sys.stderr.write(f"{len(checks) - failed} checks passed, {failed} failed\n")
    sys.exit(1 if failed or not checks else 0)


def refusal(kind: type[Exception], call: Callable[..., object], *arguments: Any, **named: Any) -> Exception:
    """What a call raises that has to be refused."""
    try:
        call(*arguments, **named)
    except kind as error:
        return error
    raise AssertionError(f"{call} was not refused")
