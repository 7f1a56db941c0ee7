"""A Ray cluster on this machine that reads commands as lines of JSON. Run it with an interpreter that has Ray.

Usage: ``python -m tests.plugins.ray.cluster``. It writes a line of JSON ``{"result": <port of its proxy>}``. Then it
reads a command ``{"do": ..., ...}``, and writes a line ``{"result": ...}``, or ``{"error": <traceback>}``. It stops at
the end of the input.
"""

import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from tests.plugins.bulk_run.cluster import bulk

ray: Any = importlib.import_module("ray")
serve: Any = importlib.import_module("ray.serve")
context: Any = importlib.import_module("ray.serve.context")
schema: Any = importlib.import_module("ray.serve.schema")
serve_api: Any = importlib.import_module("ray.serve._private.api")
exceptions: Any = importlib.import_module("ray.exceptions")

_SECONDS = 360
_APPLICATION = "charioteer"

# On a busy machine the proxy needs longer than Ray's fixed minute.
serve_api.HTTP_PROXY_TIMEOUT = _SECONDS


def main() -> None:
    """Run commands until the input ends."""
    # Libraries may write to standard output, so results go to a copy of it.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        try:
            port = start(folder)
        except Exception:  # noqa: BLE001 - the second start reports what is wrong
            # Ray waits half a minute for its own processes, which a busy machine can exceed.
            traceback.print_exc()
            ray.shutdown()
            port = start(folder)
        try:
            print(json.dumps({"result": port}), file=answers, flush=True)
            for line in sys.stdin:
                print(json.dumps(run_command(json.loads(line))), file=answers, flush=True)
        finally:
            serve.shutdown()
            ray.shutdown()


def start(folder: str) -> int:
    """Start Ray and its proxy, and return the port of the proxy."""
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=100_000_000,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=folder,
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    return port


def run_command(command: dict[str, Any]) -> dict[str, object]:
    """Return the result of a command, or the traceback of its error."""
    try:
        return {"result": _COMMANDS[command.pop("do")](**command)}
    except Exception:  # noqa: BLE001 - the test reports it
        return {"error": traceback.format_exc()}


def deploy(arguments: dict[str, Any], user_config: dict[str, Any] | None = None) -> str:
    """Deploy the application from a Serve config, as ``serve deploy`` does, and wait until it runs or fails."""
    application: dict[str, Any] = {"name": _APPLICATION, "route_prefix": "/", "args": arguments}
    application["import_path"] = "charioteer:ray_application"
    if user_config is not None:
        application["deployments"] = [{"name": "ingress", "user_config": user_config}]
    client = context._get_global_client()
    client.deploy_apps(schema.ServeDeploySchema.model_validate({"applications": [application]}))
    deadline, pause = time.monotonic() + _SECONDS, threading.Event()
    while not _is_settled() and time.monotonic() < deadline:
        pause.wait(0.3)
    status = serve.status().applications[_APPLICATION]
    return "RUNNING" if _is_settled() and status.status == "RUNNING" else str(status)


def _is_settled() -> bool:
    status = serve.status().applications[_APPLICATION]
    healthy = all(deployment.status == "HEALTHY" for deployment in status.deployments.values())
    return status.status == "DEPLOY_FAILED" or (status.status == "RUNNING" and healthy)


def processes(deployment: str) -> list[int]:
    """Return the process ids of the deployment's replicas that respond."""
    prefix = f"SERVE_REPLICA::{_APPLICATION}#{deployment}#"
    process_ids: list[int] = []
    for named in ray.util.list_named_actors(all_namespaces=True):
        if named["name"].startswith(prefix):
            try:
                actor = ray.get_actor(named["name"], namespace=named["namespace"])
                process_ids.append(ray.get(actor.__ray_call__.remote(_own_process), timeout=60))
            except (ValueError, exceptions.RayError):
                continue
    return sorted(process_ids)


def _own_process(_: object) -> int:
    return os.getpid()


def running(deployment: str) -> int:
    """Return how many replicas of a deployment run."""
    states = serve.status().applications[_APPLICATION].deployments[deployment].replica_states
    return sum(count for state, count in states.items() if state == "RUNNING")


def kill(deployment: str) -> int:
    """Kill the process of one replica, as a machine failure would."""
    process = processes(deployment)[0]
    os.kill(process, signal.SIGKILL)
    return process


_FUNCTIONS: tuple[Callable[..., object], ...] = (bulk, deploy, processes, running, kill)
_COMMANDS = {function.__name__: function for function in _FUNCTIONS}

if __name__ == "__main__":
    main()
