"""Stands for the interpreter: hands a run to the server of `tests.support.prefork`, or starts Python where there is none.

Runs with `-I -S`, and imports nothing but what a connection needs.
"""

import array
import os
import socket
import sys

_LOST = 70


def main() -> int:
    """The exit code of the run."""
    place, *arguments = sys.argv[1:]
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(place)
    except OSError:
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - a vector, no shell
    environ = [f"{name}={value}" for name, value in os.environ.items()]
    parts = [os.getcwd(), str(len(arguments)), *arguments, *environ]  # noqa: PTH109 - pathlib takes longer than the rest
    data = "\0".join(parts).encode("utf-8", "surrogateescape")
    fds = array.array("i", [0, 1, 2])
    connection.sendmsg([len(data).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    connection.sendall(data)
    status = connection.recv(4)
    code = int.from_bytes(status, "big", signed=True) if status else _LOST
    if code < 0:
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    os._exit(main())
