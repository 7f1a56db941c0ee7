"""The entry point of a model process, run as a script.

Its arguments are the model's name, the number of the control socket, and the name of this package in the server. It
takes `sys.path` from the server, where other packages named `app` may come first.
"""

import importlib
import json
import socket
import sys


def _main() -> None:
    control = socket.socket(fileno=int(sys.argv[2]))
    length = control.recv(8, socket.MSG_WAITALL)
    if not length:
        return
    sys.path[:] = json.loads(control.recv(int.from_bytes(length, "little"), socket.MSG_WAITALL))
    import charioteer

    package = sys.argv[3]
    if not package.startswith("charioteer."):
        charioteer.claim_names()
    importlib.import_module(f"{package}.worker_main").run_worker(control, sys.argv[1])


if __name__ == "__main__":
    _main()
