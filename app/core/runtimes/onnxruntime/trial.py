"""Bound the memory of the first run of a graph that takes images of any size."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.settings.model import ModelError

_MEMORY = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")
_UNKNOWN = 8 * 1024**3
"""Bytes that count as free where the system does not say it."""
_EXCEEDED = "Available memory of"
"""Begins the reason of ONNX Runtime's arena for an allocation over its limit."""
_LOCK = threading.Lock()


def check_memory(
    framework: Any, options: Any, file: Path, feeds: Mapping[str, NDArray[np.generic]], max_bytes: int
) -> None:
    """Run a graph once on the CPU with at most `max_bytes` for its weights and values.

    Its memory is freed afterwards. Raise ModelError if it needs more. Other errors are left to the next run.
    """
    main_memory = framework.OrtMemoryInfo(
        "Cpu", framework.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, framework.OrtMemType.DEFAULT
    )

    def limit_arena(size: int) -> None:
        # The arena of the process is used only by sessions that ask for it. A new one replaces it.
        framework.create_and_register_allocator(main_memory, framework.OrtArenaCfg({"max_mem": size}))

    options.add_session_config_entry("session.use_env_allocators", "1")
    with _LOCK:
        limit_arena(max_bytes)
        try:
            framework.InferenceSession(str(file), options, providers=["CPUExecutionProvider"]).run(None, feeds)
        except Exception as error:  # noqa: BLE001  the exceptions of the framework have no common base class
            if _EXCEEDED in str(error):
                raise ModelError(f"needs more than {max_bytes / 1024**3:.2g} GiB") from None
        finally:
            limit_arena(1)


def free_memory(memory: Path = _MEMORY, group: Path = _GROUP) -> int:
    """Return the bytes that processes can still allocate, within the limit of the control group (cgroup v2)."""
    free = _UNKNOWN
    try:
        lines = dict(line.split(":", 1) for line in memory.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        cache = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        free = min(free, limit - used + int(cache["inactive_file"]))
    except (OSError, ValueError, KeyError):
        # Without a control group, or without its limit, the machine's memory decides.
        pass
    return max(free, 0)
