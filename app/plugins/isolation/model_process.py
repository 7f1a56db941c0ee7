"""The entry point of a model process, run as a script.

Its arguments are the model's name, the number of the control socket, the name of this package in the server, and the
server's `sys.path` in JSON, where other packages named `app` may come first.
"""

import importlib
import json
import socket
import sys


def _main() -> None:
    name, control, package, path = sys.argv[1:]
    sys.path[:] = json.loads(path)
    import charioteer

    if not package.startswith("charioteer."):
        charioteer.claim_names()
    importlib.import_module(f"{package}.worker_main").run_worker(socket.socket(fileno=int(control)), name)


if __name__ == "__main__":
    _main()
