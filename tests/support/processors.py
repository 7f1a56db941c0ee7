"""Run the numeric tests on an emulated processor: ``python -m tests.support.processors`` (``make test-processors``).

Debian's qemu-user-static emulates a processor with AVX2 and without AVX-512 and VNNI, ten times slower. It does not run
the decoder of AVIF, and child processes run natively: these tests need neither.
"""

import os
import shutil
import subprocess
import sys
import time
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
        "plugins/quantization/test_quantization.py::test_quantised_version_is_served_with_close_answers_and_the_same_settings",
        "plugins/quantization/test_quantization.py::test_graph_with_split_and_slice_and_weights_in_another_file_is_quantised",
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


def run(command: Sequence[str], path: str, *options: str) -> tuple[int, str, float]:
    """Return the exit status of the tests at `path`, their output and minutes; `command` starts an emulated Python."""
    start = time.monotonic()
    arguments = [*command, *_PYTEST, "-m", "not rare", *options, path]
    completed = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    for _ in range(_RUNS - 1):
        if completed.returncode >= 0:
            break
        completed = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    return completed.returncode, completed.stdout + completed.stderr, (time.monotonic() - start) / 60


def run_all(command: Sequence[str], paths: Sequence[str], *options: str) -> int:
    """Run the tests on all cores, print the output of those that fail, and return 1 if there are any."""
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = pool.map(lambda path: run(command, path, *options), paths)
        for path, (status, output, minutes) in zip(paths, outcomes, strict=True):
            if status:
                failed = 1
                sys.stdout.write(output)
            result = f"failed with {status}" if status else (output.splitlines() or ["passed"])[-1]
            sys.stdout.write(f"{path}: {result}, {minutes:.1f} minutes\n")
            sys.stdout.flush()
    return failed


def main(emulator: str = EMULATOR, paths: Sequence[str] = PATHS) -> int:
    """Run the tests on the emulated processor, and return 1 if one fails or the emulator is missing."""
    if shutil.which(emulator) is None:
        sys.stderr.write(f"{emulator} is missing: apt-get install qemu-user-static\n")
        return 1
    return run_all([emulator, "-cpu", "max", sys.executable], paths)


if __name__ == "__main__":
    sys.exit(main())
