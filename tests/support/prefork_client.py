"""Stands for the interpreter: hands a run to the server of `tests.support.prefork`, or starts Python where there is none.

Runs with `-I -S`, and imports nothing but what a connection needs: `socket` and `os` would take as long as the rest of the start.
"""

import _socket
import posix
import sys

_LOST = 70


def main() -> int:
    """The exit code of the run."""
    place, *arguments = sys.argv[1:]
    connection = _socket.socket(_socket.AF_UNIX)
    try:
        connection.connect(place)
    except OSError:
        posix.execv(sys.executable, [sys.executable, *arguments])
    environ = [b"%s=%s" % each for each in posix.environ.items()]
    parts = [each.encode("utf-8", "surrogateescape") for each in ("", posix.getcwd(), str(len(arguments)), *arguments)]
    data = b"\0".join([*parts, *environ])
    fds = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2))
    connection.sendmsg([len(data).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fds)])
    connection.sendall(data)
    status = connection.recv(4)
    code = int.from_bytes(status, "big", signed=True) if status else _LOST
    if code < 0:
        posix.kill(posix.getpid(), -code)
    return code


if __name__ == "__main__":
    posix._exit(main())
