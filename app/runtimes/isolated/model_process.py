"""The first lines of a model's own process; started by its path, with a socket's number and the model's name.

Nothing of this project can be imported before the server has said where it lies.
"""

import json
import socket
import sys

__all__ = ()


def _begin() -> None:
    control = socket.socket(fileno=int(sys.argv[2]))
    length = control.recv(8, socket.MSG_WAITALL)
    if not length:
        return
    sys.path[:] = json.loads(control.recv(int.from_bytes(length, "little"), socket.MSG_WAITALL))
    from app.runtimes.isolated.working import work

    work(control, sys.argv[1])


if __name__ == "__main__":
    _begin()
