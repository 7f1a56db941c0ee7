"""A Ray cluster on this machine that reads commands as lines of JSON. Run it with an interpreter that has Ray.

Usage: ``python -m tests.plugins.ray.cluster <port>``. It reads a command ``{"do": ..., ...}`` and writes its result
as a line of JSON. It stops at the end of the input.
"""

import importlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from tests.plugins.bulk_run.cluster import bulk
from tests.support.polling import wait_until

ray: Any = importlib.import_module("ray")
serve: Any = importlib.import_module("ray.serve")
context: Any = importlib.import_module("ray.serve.context")
schema: Any = importlib.import_module("ray.serve.schema")
exceptions: Any = importlib.import_module("ray.exceptions")

_CPUS = 8
_OBJECT_STORE_BYTES = 100_000_000
_SECONDS = 120
_APPLICATION = "charioteer"


def main() -> None:
    """Run commands until the input ends."""
    # Libraries may write to standard output, so results go to a copy of it.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        ray.init(
            num_cpus=_CPUS,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
        serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
        try:
            for line in sys.stdin:
                command = json.loads(line)
                answer = _COMMANDS[command.pop("do")](**command)
                print(json.dumps(answer), file=answers, flush=True)
        finally:
            serve.shutdown()
            ray.shutdown()


def deploy(arguments: dict[str, Any], user_config: dict[str, Any] | None = None) -> str:
    """Deploy the application from a Serve config, as ``serve deploy`` does, and wait until it runs or fails."""
    application: dict[str, Any] = {
        "name": _APPLICATION,
        "route_prefix": "/",
        "import_path": "charioteer:ray_application",
        "args": arguments,
    }
    if user_config is not None:
        application["deployments"] = [{"name": "ingress", "user_config": user_config}]
    client = context._get_global_client()
    client.deploy_apps(schema.ServeDeploySchema.model_validate({"applications": [application]}))
    wait_until(_is_settled, _SECONDS)
    status = serve.status().applications[_APPLICATION]
    return "RUNNING" if status.status == "RUNNING" else f"{status.status}: {status.message}"


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
                process_ids.append(ray.get(actor.__ray_call__.remote(_own_process), timeout=10))
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


_COMMANDS: dict[str, Callable[..., object]] = {
    "bulk": bulk,
    "deploy": deploy,
    "processes": processes,
    "running": running,
    "kill": kill,
}

if __name__ == "__main__":
    main()
