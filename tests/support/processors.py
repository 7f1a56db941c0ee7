"""Run the numeric tests on an emulated processor: ``python -m tests.support.processors`` (``make test-processors``).

Debian's qemu-user-static emulates a processor with AVX2 and without AVX-512 and VNNI, ten times slower. It does not run
the decoder of AVIF, and child processes run natively: these tests need neither.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
EMULATOR = "qemu-x86_64-static"
_PYTEST = ["-m", "pytest", "-q", "-p", "no:xdist", "--hypothesis-profile", "brief", "-o", "faulthandler_timeout=1200"]
_RUNS = 3
"""A run that ends with a signal is repeated: the emulator crashes now and then."""
PATHS = tuple(
    f"tests/{path}"
    for path in (
        "plugins/drift/test_hypothesis_tests.py", "plugins/drift/test_comparison.py",
        "plugins/drift/test_measurement.py",
        "plugins/tuning/test_quantization.py::test_quantised_version_is_served_with_close_answers_and_the_same_settings",
        "plugins/tuning/test_quantization.py::test_graph_with_split_and_slice_is_quantised",
        "plugins/explanations/test_sampling.py", "plugins/explanations/test_masks.py",
        "plugins/explanations/test_rows.py", "plugins/explanations/test_similarity.py", "plugins/evaluation/metrics",
        "core/runtimes/onnxruntime/heads", "core/runtimes/onnxruntime/images", "core/runtimes/onnxruntime/layouts",
        "core/runtimes/onnxruntime/test_grey_inputs.py", "core/runtimes/onnxruntime/test_tensor_graphs.py",
        "core/runtimes/onnxruntime/test_vision.py",
        "core/runtimes/onnxruntime/test_session.py::test_signed_int8_weights_do_not_saturate",
        "tasks/vision/test_boxes.py", "tasks/vision/test_contours.py", "tasks/vision/test_request.py",
        "tasks/vision/test_rotated_ious.py", "tasks/test_postprocessing.py", "tasks/test_predictions.py",
    )
)  # fmt: skip
"""Those that take longest come first."""


def run(emulator: str, path: str) -> tuple[int, str]:
    """Return the exit status of the tests at `path`, and their output."""
    command = [emulator, "-cpu", "max", sys.executable, *_PYTEST, "-m", "not rare", path]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    for _ in range(_RUNS - 1):
        if completed.returncode >= 0:
            break
        completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return completed.returncode, completed.stdout + completed.stderr


def main(emulator: str = EMULATOR, paths: Sequence[str] = PATHS) -> int:
    """Run the tests on all cores, print the output of those that fail, and return 1 if there are any."""
    if shutil.which(emulator) is None:
        sys.stderr.write(f"{emulator} is missing: apt-get install qemu-user-static\n")
        return 1
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = pool.map(lambda path: run(emulator, path), paths)
        for path, (status, output) in zip(paths, outcomes, strict=True):
            if status:
                failed = 1
                sys.stdout.write(output)
            sys.stdout.write(f"{path}: {f'failed with {status}' if status else 'passed'}\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
