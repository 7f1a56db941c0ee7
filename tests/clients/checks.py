"""Share images and helpers between the scripts for client environments, which cannot import anything else from here."""

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

IMAGE_OF_MODEL = {
    "classifier": SHAPE,
    "detector": SCENE,
    "oriented-detector": ORIENTED,
    "segmenter": SCENE,
    "vlm": SHAPE,
}
"""An image for each fixture model with a task."""

TENSOR_MODELS = ("greeter", "half_plus_three", "half_plus_two")


def run(names: dict[str, Any], *arguments: object) -> None:
    """Call every function in `names` called ``check_...``, with `arguments`; exit with 1 when any of them fails."""
    checks: list[Callable[..., object]] = [function for name, function in names.items() if name.startswith("check_")]
    script, failed = Path(sys.argv[0]).stem, 0
    for check in checks:
        result = "passed"
        try:
            check(*arguments[: len(inspect.signature(check).parameters)])
        except Exception:  # noqa: BLE001  a client may raise anything
            failed += 1
            result = "failed"
            sys.stderr.write(f"{check.__name__} failed\n{traceback.format_exc()}\n")
        sys.stdout.write(f"{script} {check.__name__} {result}\n")
    sys.stderr.write(f"{len(checks) - failed} checks passed, {failed} failed\n")
    sys.exit(1 if failed or not checks else 0)


def raised_error(kind: type[Exception], call: Callable[..., object], *arguments: Any, **named: Any) -> Exception:
    """Return the exception of a call that must fail."""
    try:
        call(*arguments, **named)
    except kind as error:
        return error
    raise AssertionError(f"{call} was not rejected")
