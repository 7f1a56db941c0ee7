"""Break the code in sixty places, one after the other, and check that a quick test fails for each.

Usage: ``python -m tests.mutants [WORD ...]`` (``make mutants``, minutes); words select mutants by their file. The code is
changed in a copy. The exit status is 1 if a mutant survives. `tests/test_mutants.py` checks that each fits the code.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_TIMEOUT_SECONDS = 600


class Mutant(NamedTuple):
    """A text that occurs once in the code, what replaces it, and the tests that must notice, below `tests`."""

    before: str
    after: str
    tests: str


# fmt: off
_WIRE, _V2, _GOLDEN = "core/wire", "core/protocols/kserve_v2", "conformance/test_wire.py"
_AUTH, _IMAGES = "core/server/auth/test_credentials.py", "tasks/vision"
_RECORDING, _QUERY = "plugins/recording/stores plugins/recording/test_recorder.py", "plugins/recording/query"
MUTANTS = (
    # Decoders
    Mutant('if encoding[1] and encoding[2].lstrip(" ").lower() == "base64"', "if True", _WIRE),
    Mutant("(-len(compact) % 4), validate=True", "(-len(compact) % 4), validate=False", _WIRE),
    Mutant("return len(members) == 1 and isinstance", "return isinstance", _GOLDEN),
    Mutant("any(number not in (0, 1) for number in numbers)", "False", _WIRE),
    Mutant('if datatype.kind == "f" and not np.all(np.isfinite(array))', "if False", _WIRE),
    Mutant("if set(map(type, flat_values)) <= allowed", "if True", _WIRE),
    Mutant("if length > len(body)", "if length > len(body) + 1", _V2),
    Mutant("if not header_length.isascii() or not header_length.isdecimal()", "if False", _V2),
    Mutant("if math.prod(shape) != len(elements)", "if math.prod(shape) < len(elements)", _GOLDEN),
    Mutant("if shape and min(shape) < 0", "if shape and min(shape) < -1", _V2),
    Mutant("if position != len(binary)", "if position > len(binary)", _GOLDEN),
    Mutant("if (size is None) == isinstance(wire.data, msgspec.UnsetType)", "if False", _GOLDEN),
    Mutant("if raw and len(raw) != len(message.inputs)", "if raw and len(raw) > len(message.inputs)", _V2),
    Mutant("if field.name != name and field.name in self.stored_dtypes", "if False", _V2),
    Mutant("if len(value_keys) != 1", "if not value_keys", _GOLDEN),
    Mutant("    if unknown is not None:\n        message", "    if False:\n        message", _GOLDEN),
    Mutant("if missing is not None:\n        raise invalid(f\"Expected a value for the input", "if False:\n        raise invalid(f\"Expected a value for the input", _GOLDEN),
    Mutant("if len(specs) == 1 and not _is_named(instances[0], root)", "if len(specs) == 1", _GOLDEN),
    Mutant("id=wire.id or context.request_id", "id=context.request_id", "core/protocols/chariot"),
    Mutant("if not lines:\n            raise invalid", "if False:\n            raise invalid", _GOLDEN),
    Mutant("if len(wire_responses) == 1", "if False", "core/protocols/chariot"),
    Mutant("orientation in _TRANSPOSED", "orientation not in _TRANSPOSED", _IMAGES),
    Mutant("if not allow_avif_jpeg2000 and", "if False and", _IMAGES),
    # Limits
    Mutant("if fields > limits.max_entries", "if fields > 2 * limits.max_entries", _WIRE),
    Mutant("    if elements > limits.max_elements:\n                        raise", "    if False:\n                        raise", _WIRE),
    Mutant("if length > end - position", "if False", _WIRE),
    Mutant("if count > limits.max_inputs", "if False", "tasks core/protocols/test_limits.py"),
    Mutant('(count := body.count(b"\\n")) > limits.max_entries', '(count := body.count(b"\\n")) > 2 * limits.max_entries', "core/protocols/chariot core/protocols/test_limits.py"),
    Mutant("if len(shape) > MAX_DIMENSIONS", "if len(shape) > MAX_DIMENSIONS + 1", _GOLDEN),
    Mutant("if len(text) > limits.max_text_length", "if len(text) > limits.max_text_length + 1", "tasks core/protocols/test_limits.py"),
    Mutant("if remaining < 0", "if False", _IMAGES),
    Mutant("if end - _CHECKSUM_BYTES > len(data)", "if False", _IMAGES),
    Mutant("len(labels) > _MAX_CANDIDATES or ", "", "tasks"),
    Mutant("if in_flight < self.max_in_flight", "if in_flight <= self.max_in_flight", "core/engine/scheduling"),
    Mutant("self._workers + self._queue_limits.max_waiting", "self._workers + self._queue_limits.max_waiting + 1", "core/engine/scheduling"),
    Mutant("elif self._waiting_inputs >= self._max_size", "elif False", "core/engine/scheduling"),
    # Merges
    Mutant("return own_value if name not in self.parameters or not _is_null(own_value) else self.parameters[name]", "return self.parameters.get(name, own_value)", "tasks core/protocols/kserve_v2"),
    Mutant('return value is None or (isinstance(value, msgspec.Raw) and bytes(value) == b"null")', "return value is None", "tasks core/protocols conformance/test_wire.py"),
    Mutant("selected = ((scores >= parameters.score_threshold)", "selected = ((scores > parameters.score_threshold)", "tasks"),
    Mutant("& np.isfinite(scores)", "", "tasks"),
    Mutant("-top_k)[-top_k]", "-top_k)[-1]", "tasks"),
    Mutant("if len(batch) > 1 and len(predictions) != len(inputs)", "if False", "core/engine/scheduling"),
    Mutant("candidate = (queue.running > 0, queue.virtual_time, name)", "candidate = (queue.running > 0, 0, name)", "core/engine/scheduling"),
    # Access
    Mutant("if permission not in identity.permissions", "if False", "core/server/auth"),
    Mutant("if permission in _RATE_LIMITED_PERMISSIONS", "if True", "core/server/auth"),
    Mutant("if key.not_after is not None and self._clock() > key.not_after", "if False", _AUTH),
    Mutant("if len(set(values)) < len(values)", "if False", _AUTH),
    Mutant("if len(values) > 1:\n        raise unauthenticated", "if False:\n        raise unauthenticated", _AUTH),
    Mutant("if len(credential) > _MAX_CHARACTERS", "if False", _AUTH),
    Mutant("min(float(rate.burst), self._tokens", "(self._tokens", "core/server/auth/test_rate_limiter.py"),
    Mutant("or settings.insecure:", "or True:", "core/server/auth"),
    Mutant('"refused" if status in _REFUSED_STATUSES else ', "", "core/server/auth"),
    # Recording
    Mutant("if score is None or score >= _MIN_SCORE", "if score is None or score > _MIN_SCORE", _RECORDING),
    Mutant("score > known", "score < known", _RECORDING),
    Mutant('rows = [row for row in rows if row.recording["id"] not in existing]', "pass", _RECORDING),
    Mutant("return key.casefold() in self._keys", "return key in self._keys", "plugins/recording"),
    Mutant("if deleted == _MAX_DELETED", "if False", "plugins/recording/test_retention.py"),
    Mutant("str(numbers[limit - 1]) if len(numbers) > limit", "str(numbers[limit - 1]) if len(numbers) >= limit", _QUERY),
    Mutant('("until", operator.lt)', '("until", operator.le)', _QUERY),
)
# fmt: on


def files_with(text: str) -> Sequence[Path]:
    """Return the files of the code with a text, relative to the root, one for each time that it occurs."""
    return [file for file, content in _code().items() for _ in range(content.count(text))]


@cache
def _code() -> Mapping[Path, str]:
    files = (file for name in ("app", "metadata", "tasks") for file in (ROOT / name).rglob("*.py"))
    return {file.relative_to(ROOT): file.read_text() for file in files}


def main() -> int:
    """Run the selected mutants, and print each with its result."""
    words = sys.argv[1:]
    files = {mutant: files_with(mutant.before)[0] for mutant in MUTANTS}
    mutants = [mutant for mutant in MUTANTS if not words or any(word in str(files[mutant]) for word in words)]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        ignored = shutil.ignore_patterns("__pycache__")
        for name in ("app", "metadata", "tasks", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        for name in ("fixtures", "docs", "deploy", "Makefile", "pyproject.toml", "README.md", "CHANGELOG.md"):
            (copy / name).symlink_to(ROOT / name)
        status, output = _run_tests(sorted({path for mutant in mutants for path in mutant.tests.split()}), copy)
        if status != 0:
            sys.stdout.write(f"{output[-3000:]}\nThe tests fail without a mutant\n")
            return 1
        for mutant in mutants:
            result = _run(mutant, copy / files[mutant], copy)
            survivors += result != "killed"
            sys.stdout.write(f"{result:9} {files[mutant]}: {mutant.before}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(mutants) - survivors} of {len(mutants)} mutants were killed\n")
    return 1 if survivors or not mutants else 0


def _run(mutant: Mutant, file: Path, copy: Path) -> str:
    original = file.read_text()
    file.write_text(original.replace(mutant.before, mutant.after))
    status, _ = _run_tests(mutant.tests.split(), copy, _TIMEOUT_SECONDS)
    file.write_text(original)
    return "killed" if status == 1 else "SURVIVED" if status == 0 else f"STATUS {status}"


def _run_tests(tests: Sequence[str], copy: Path, timeout: float | None = None) -> tuple[int, str]:
    """Return pytest's exit status and output; tests that exceed the timeout have failed."""
    paths = [f"tests/{path}" for path in tests]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", *paths]
    try:
        process = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return 1, ""
    return process.returncode, process.stdout


if __name__ == "__main__":
    sys.exit(main())
