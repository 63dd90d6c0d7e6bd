"""The server behind `tests.support.prefork`: import the verbs once, then fork for each request."""

from __future__ import annotations

import contextlib
import gc
import gettext
import importlib
import io
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import types

import gitops
from gitops.cli.main import build_parser
from gitops.render.environment import _compiled
from gitops.repository.wiring.stores import edition
from tests.support import pen
from tests.support.pages import ROOT

# The drivers of the web server belong to an extra, and a server of that kind is started for real; so is one of agents.
_LEFT_OUT = ("gitops.__main__", "gitops.server", "gitops.serving.http.mcp")
# What the verbs import where they need it; a child that became another user might not be allowed to read it.
_LATE = (
    "obstore",
    "obstore.exceptions",
    "obstore.store",
    "yaml",
    "encodings.ascii",
    "encodings.idna",
    "encodings.latin_1",
)


class Server:
    """Accepts requests until the test process is gone. `running` maps the children to who waits for them."""

    def __init__(self, listener: socket.socket, alive: int) -> None:
        self.listener = listener
        self.alive = alive
        self.running: dict[int, socket.socket] = {}

    def serve(self) -> None:
        wake, waker = os.pipe()
        os.set_blocking(waker, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        selector = selectors.DefaultSelector()
        for source in (self.listener, self.alive, wake):
            selector.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is self.listener:
                    self.accept()
                elif key.fileobj == self.alive:
                    return
                else:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake, 4096)
                    self.reap()

    def accept(self) -> None:
        connection, _ = self.listener.accept()
        head, fds, _, _ = socket.recv_fds(connection, 4, 3)
        size = int.from_bytes(head, "big")
        data = b""
        while len(data) < size:
            data += connection.recv(size - len(data))
        child = os.fork()
        if child == 0:
            self.listener.close()
            connection.close()
            for other in self.running.values():
                other.close()
            os.close(self.alive)
            os._exit(_run(data.decode("utf-8", "surrogateescape").split("\0"), fds))
        for fd in fds:
            os.close(fd)
        self.running[child] = connection

    def reap(self) -> None:
        while self.running:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                return
            connection = self.running.pop(child)
            code = os.waitstatus_to_exitcode(status)
            with connection, contextlib.suppress(OSError):
                connection.sendall(code.to_bytes(4, "big", signed=True))


def _run(parts: list[str], fds: list[int]) -> int:
    account, folder, count, *rest = parts
    arguments, environ = rest[: int(count)], rest[int(count) :]
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    for fd in fds:
        if fd > 2:
            os.close(fd)
    if account:
        _become(int(account))
    # A hook that the program installs starts the program in the same way.
    sys.executable = sys.argv[3]
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(dict(each.partition("=")[::2] for each in environ))
    sys.stdin = io.TextIOWrapper(open(0, "rb"), encoding="utf-8")  # noqa: SIM115
    sys.stdout = io.TextIOWrapper(open(1, "wb"), encoding="utf-8")  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(open(2, "wb", 0), encoding="utf-8", errors="backslashreplace", write_through=True)  # noqa: SIM115
    _git_settings()
    try:
        _execute(*arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:  # noqa: BLE001 - an interpreter prints what it dies of
        sys.excepthook(*sys.exc_info())
        code = 1
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    return code


def _become(account: int) -> None:
    """Give up everything that the user of the tests may do, for good. Whoever waits too long for this process is rid of it."""
    os.setgroups([])
    os.setresgid(account, account, account)
    os.setresuid(account, account, account)
    signal.alarm(600)


def _execute(form: str, what: str, *arguments: str) -> None:
    """What an interpreter does with `-m MODULE` or `-c CODE`, after `-I` or without it."""
    if form == "-I":
        form, what, arguments = what, arguments[0], arguments[1:]
    sys.argv = [what if form == "-m" else "-c", *arguments]
    if form == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        exec(compile(what, "<string>", "exec"), module.__dict__)  # noqa: S102 - the code of a test


def _git_settings() -> None:
    """libgit2 looked for the settings of its user when it was imported: now there is another one."""
    import pygit2
    from pygit2.enums import ConfigLevel

    home = os.environ.get("HOME", "")
    pygit2.settings.search_path[ConfigLevel.GLOBAL] = home
    pygit2.settings.search_path[ConfigLevel.XDG] = f"{os.environ.get('XDG_CONFIG_HOME') or home + '/.config'}/git"


def _warm() -> None:
    """Do once what every child would do: late imports, dataclasses, the command line, templates, the digest of the sources."""
    for module in pkgutil.walk_packages(gitops.__path__, "gitops."):
        if not module.name.startswith(_LEFT_OUT):
            importlib.import_module(module.name)
    for name in _LATE:
        importlib.import_module(name)
    found = [
        value for name, module in sys.modules.items() if name.startswith("gitops.") for value in vars(module).values()
    ]
    for value in found:
        if isinstance(value, type):
            for method in ("__init__", "__eq__"):
                getattr(value, method)
    # Each text of a command line is looked for in catalogs of translations, and there are none.
    gettext.find = lambda *_, **__: None  # type: ignore[assignment]
    build_parser()
    for path in (ROOT / "templates").glob("*.md.j2"):
        _compiled(path.name, path.read_text(encoding="utf-8"))
    edition()


def main() -> None:
    """Serve on the descriptor of the first argument until that of the second is closed."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    _warm()
    pen.install()
    # What is shared with the children stays shared: a collection would write into each of its pages.
    gc.freeze()
    Server(listener, int(sys.argv[2])).serve()


if __name__ == "__main__":
    main()
