"""A Ray of its own on this machine, told what to do in lines of JSON. Run by an interpreter that has Ray.

Usage: ``python -m tests.ray.cluster <port>``. A line ``{"do": ..., ...}`` comes in, a line of JSON goes out; at the end
of the input everything ends.
"""

import importlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

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
    """Answer until the input ends."""
    # Others may write to standard output; the answers go where it was.
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
                order = json.loads(line)
                answer = _ORDERS[order.pop("do")](**order)
                print(json.dumps(answer), file=answers, flush=True)
        finally:
            serve.shutdown()
            ray.shutdown()


def deploy(arguments: dict[str, Any], user_config: dict[str, Any] | None = None) -> str:
    """Deploy the application from a Serve config, as ``serve deploy`` does, and wait until it is so."""
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
    healthy = all(each.status == "HEALTHY" for each in status.deployments.values())
    return status.status == "DEPLOY_FAILED" or (status.status == "RUNNING" and healthy)


def processes(deployment: str) -> list[int]:
    """The processes of a deployment's replicas that answer."""
    prefix = f"SERVE_REPLICA::{_APPLICATION}#{deployment}#"
    found: list[int] = []
    for each in ray.util.list_named_actors(all_namespaces=True):
        if each["name"].startswith(prefix):
            try:
                actor = ray.get_actor(each["name"], namespace=each["namespace"])
                found.append(ray.get(actor.__ray_call__.remote(_own_process), timeout=10))
            except (ValueError, exceptions.RayError):
                continue
    return sorted(found)


def _own_process(_: object) -> int:
    return os.getpid()


def running(deployment: str) -> int:
    """How many replicas of a deployment run."""
    states = serve.status().applications[_APPLICATION].deployments[deployment].replica_states
    return sum(count for state, count in states.items() if state == "RUNNING")


def kill(deployment: str) -> int:
    """Kill the process of one replica, as a machine that fails would."""
    process = processes(deployment)[0]
    os.kill(process, signal.SIGKILL)
    return process


_ORDERS: dict[str, Callable[..., object]] = {
    "deploy": deploy,
    "processes": processes,
    "running": running,
    "kill": kill,
}

if __name__ == "__main__":
    main()
