"""Runs the git program and ssh-keygen. No other module of this package starts them.

Rules for every run:

1. Programs get an argument vector, never a shell command. The repository is passed explicitly, never found from the working
   folder.
2. Only inherited variables on a list are passed on, so that no hook, helper or filter that git starts sees a
   token, a signing key or the credentials of a bucket. `GITOPS_GIT_ENVIRONMENT` lists more (for a credential helper that reads
   a token); only runs `as_user` use it. `GIT_*` is dropped except for the user's login settings, because inside a server hook
   these variables point at the pusher's repository. Only an explicit `Quarantine` restores the three that let a hook see the
   objects of a push that is not accepted yet.
3. Replacement refs, grafts, hooks, the system configuration and prompts are off; messages are in English, unlocalized.
4. Output and time are limited. After a timeout, the program first gets SIGTERM, so that git removes its lock files.

The user's own configuration is read only for runs `as_user`, because talking to a remote needs the user's credential helper,
ssh command, proxies and certificates. All other runs do not read it, so nothing in it (aliases of
objects, signing, hooks) can change their behaviour. Hooks of a *remote* repository still run, because git does not pass our
settings to the receiving side.

Sources: git(1) environment variables, githooks(5), git-config(1), ssh(1), ssh-add(1), gpg-agent(1), curl(1).
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import IO, Final

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, UsageError

MAX_OUTPUT = 64 << 20
_MAX_STDERR = 64 << 10
_CHUNK = 64 << 10
_GRACE_S = 5.0

# Variables that every program needs to start, to find its files and to write temporary files.
_PLAIN = frozenset(
    {
        "HOME",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_CTYPE",
        "LD_LIBRARY_PATH",
        "LOGNAME",
        "PATH",
        "TEMP",
        "TMP",
        "TMPDIR",
        "TZ",
        "USER",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_RUNTIME_DIR",
    }
)
# How the user authenticates, and where the user's configuration is. Passed on when git runs as the user.
_USER = frozenset(
    {
        "GIT_ASKPASS",
        "GIT_CONFIG_GLOBAL",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_SSH_VARIANT",
        "GIT_SSL_CAINFO",
        "GIT_SSL_CAPATH",
        "GIT_SSL_CERT",
        "GIT_SSL_KEY",
        # Agents, their prompts, and where they find a terminal or a display.
        "DBUS_SESSION_BUS_ADDRESS",
        "DISPLAY",
        "GNUPGHOME",
        "GPG_AGENT_INFO",
        "GPG_TTY",
        "SSH_AGENT_PID",
        "SSH_ASKPASS",
        "SSH_ASKPASS_REQUIRE",
        "SSH_AUTH_SOCK",
        "SSH_PKCS11_HELPER",
        "SSH_SK_HELPER",
        "SSH_SK_PROVIDER",
        "TERM",
        "WAYLAND_DISPLAY",
        "XAUTHORITY",
        # Kerberos, proxies and certificates.
        "ALL_PROXY",
        "CURL_CA_BUNDLE",
        "HTTPS_PROXY",
        "KRB5CCNAME",
        "KRB5_CONFIG",
        "NO_PROXY",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "all_proxy",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        # The hooks of a server in a folder on this machine read these. They contain no secrets.
        "GITOPS_CACHE",
        "GITOPS_CACHE_DIR",
    }
)
_MORE = "GITOPS_GIT_ENVIRONMENT"
_ALWAYS = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    # git:// has no authentication, and ext:: runs programs.
    "GIT_ALLOW_PROTOCOL": "file:http:https:ssh",
    "LC_ALL": "C",
}
_CONFIG = (
    f"core.hooksPath={os.devnull}",
    "core.fsmonitor=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "advice.graftFileDeprecated=false",
)


@dataclass(frozen=True, slots=True)
class Output:
    """Result of a program: exit status (negative for a signal), output, messages, and whether it timed out."""

    status: int
    stdout: bytes
    stderr: str
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """True if the program exited with status 0 in time."""
        return self.status == 0 and not self.timed_out


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Where receive-pack stores a push's objects while its pre-receive hook decides (git-receive-pack(1))."""

    path: str
    object_directory: str
    alternates: str

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Quarantine | None:
        """Return the quarantine from a hook's environment, or None outside one."""
        path = environ.get("GIT_QUARANTINE_PATH", "")
        objects = environ.get("GIT_OBJECT_DIRECTORY", path)
        if not path:
            return None
        alternates = environ.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "")
        return cls(os.path.abspath(path), os.path.abspath(objects), alternates)  # noqa: PTH100 - links stay as they are

    def variables(self) -> dict[str, str]:
        """Return the environment variables that make git look there. With them set, git refuses to move refs."""
        return {
            "GIT_QUARANTINE_PATH": self.path,
            "GIT_OBJECT_DIRECTORY": self.object_directory,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": self.alternates,
        }


def child_environment(inherited: Mapping[str, str], *, as_user: bool) -> dict[str, str]:
    """Return those of the `inherited` variables that a child program can see (rule 2)."""
    kept = _PLAIN
    if as_user:
        more = inherited.get(_MORE, "").replace(",", " ").split()
        kept = kept | _USER | {name for name in more if not name.startswith("GIT_")}
    return {name: value for name, value in inherited.items() if name in kept}


class GitProgram:
    """The git program for one repository."""

    def __init__(
        self,
        git_dir: str,
        *,
        environ: Mapping[str, str] | None = None,
        quarantine: Quarantine | None = None,
        as_user: bool = False,
    ) -> None:
        """`git_dir` is the `.git` folder or the bare repository.

        `environ` defaults to the environment of the process.
        """
        env = child_environment(os.environ if environ is None else environ, as_user=as_user) | _ALWAYS
        if quarantine is not None:
            env.update(quarantine.variables())
        if not as_user:
            env["GIT_CONFIG_GLOBAL"] = os.devnull
        self._env = env
        self._prefix = ("git", f"--git-dir={git_dir}", *(part for line in _CONFIG for part in ("-c", line)))

    def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        timeout_s: float = 60.0,
        extra: Mapping[str, str] | None = None,
        folder: str | None = None,
    ) -> Output:
        """Run `git ARGUMENTS` in `folder`. `extra` adds environment variables.

        Raises GitopsError `git_failed` if it cannot start.
        """
        env = self._env if extra is None else {**self._env, **extra}
        return run_program((*self._prefix, *arguments), env=env, stdin=stdin, timeout_s=timeout_s, folder=folder)

    def converse(self, *arguments: str, extra: Mapping[str, str]) -> Conversation:
        """Start `git ARGUMENTS`, which answers questions until it is closed. Raises GitopsError `git_failed`."""
        return Conversation((*self._prefix, *arguments), {**self._env, **extra})

    def settings(self) -> dict[str, str]:
        """Read the complete configuration with one git run. Maps keys as git prints them (`config_key`) to last values."""
        output = self.run("config", "--list", "-z")
        if not output.ok:
            return {}
        lines = output.stdout.decode("utf-8", "replace").split("\0")
        return {key: value for key, _, value in (line.partition("\n") for line in lines if line)}

    def config(self, key: str, *, path: bool = False) -> str | None:
        """Return the last value of a configuration key, with `~` expanded if it is a path. None if the key is not set."""
        kind = ("--type=path",) if path else ()
        output = self.run("config", *kind, "--get", "--", key)
        return output.stdout.decode("utf-8", "replace").rstrip("\n") if output.ok else None


def config_key(name: str) -> str:
    """Return a configuration key as git prints it. Case does not matter in section and name, but does in the subsection."""
    section, dot, rest = name.partition(".")
    middle, between, last = rest.rpartition(".")
    return f"{section.lower()}{dot}{middle}{between}{last.lower()}"


def run_program(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: bytes = b"",
    timeout_s: float = 60.0,
    folder: str | None = None,
    max_output: int = MAX_OUTPUT,
    failed: Code = Code.GIT_FAILED,
    too_large: Code = Code.GIT_FAILED,
) -> Output:
    """Run one program in `folder` (default: the working folder), with `stdin` as its input, and wait until it ends.

    The output is limited to `max_output` bytes, and messages beyond 64 KiB are dropped. The program stays in our process
    group, so that ssh and ssh-keygen can prompt on the terminal. Raises UsageError with the code `failed` if the program
    does not exist, GitopsError `too_large` if it writes too much.
    """
    # In memory, because the input can contain secrets. Unlike a pipe, it needs no thread that writes it.
    with open(os.memfd_create("stdin"), "w+b") as source:  # noqa: PTH123 - it has no path
        source.write(stdin)
        source.seek(0)
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env),
                cwd=folder,
                close_fds=True,
            )
        except (OSError, ValueError) as error:
            raise UsageError(failed, f"cannot start {argv[0]}: {error}") from error
    with process:
        try:
            stdout, stderr, in_time = _collect(process, time.monotonic() + timeout_s, max_output)
            if len(stdout) > max_output:
                raise GitopsError(too_large, f"{argv[0]} wrote more than {max_output} bytes")
            if in_time:
                process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            in_time = False
        finally:
            _end(process)
    return Output(process.returncode, stdout, stderr.decode("utf-8", "replace"), timed_out=not in_time)


def _collect(process: subprocess.Popen[bytes], deadline: float, max_output: int) -> tuple[bytes, bytes, bool]:
    """Read both pipes until they end, the time is up, or there is too much output."""
    assert process.stdout is not None  # noqa: S101 - both were asked for
    assert process.stderr is not None  # noqa: S101
    stdout, stderr = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, stdout)
        selector.register(process.stderr, selectors.EVENT_READ, stderr)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                return bytes(stdout), bytes(stderr), False
            for key, _ in ready:
                pipe: IO[bytes] = key.fileobj  # type: ignore[assignment]
                chunk = os.read(pipe.fileno(), _CHUNK)
                if not chunk:
                    selector.unregister(pipe)
                key.data.extend(chunk)
            del stderr[_MAX_STDERR:]
            if len(stdout) > max_output:
                break
    return bytes(stdout), bytes(stderr), True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a running program, first with SIGTERM, then with SIGKILL."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Conversation:
    """A program that answers requests one by one, such as `git cat-file --batch-command`. For one thread.

    It ends when this object is closed or no longer used, and when this process ends. Its other output is dropped. After
    an error it gets no further requests; the caller starts a new one.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], *, timeout_s: float = 60.0) -> None:
        """Start the program. Raises UsageError `git_failed` if it does not exist."""
        self.program: Final = argv[0]
        self._timeout_s = timeout_s
        self._owner = os.getpid()
        self._unread = bytearray()
        pipe, none = subprocess.PIPE, subprocess.DEVNULL
        try:
            process = subprocess.Popen(list(argv), stdin=pipe, stdout=pipe, stderr=none, env=dict(env), bufsize=0)
        except (OSError, ValueError) as error:
            raise UsageError(Code.GIT_FAILED, f"cannot start {argv[0]}: {error}") from error
        assert process.stdin is not None  # noqa: S101 - both were asked for
        assert process.stdout is not None  # noqa: S101
        self._questions, self._answers = process.stdin, process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._answers, selectors.EVENT_READ)
        self._close = weakref.finalize(self, _hang_up, process, self._selector, self._owner)

    @property
    def is_ours(self) -> bool:
        """Return False after a fork, because then both processes share the pipes."""
        return os.getpid() == self._owner

    def ask(self, question: str) -> bytes:
        """Return the first line of the answer, without its end. Raises GitopsError `git_failed`."""
        try:
            self._questions.write(f"{question}\n".encode())
        except OSError as error:
            raise GitopsError(Code.GIT_FAILED, f"{self.program} has ended") from error
        while (end := self._unread.find(b"\n")) < 0:
            self._more()
        return self._taken(end + 1)[:-1]

    def take(self, size: int) -> bytes:
        """Return the next bytes of the answer. Raises GitopsError `git_failed`, also for more than `MAX_OUTPUT`."""
        if size > MAX_OUTPUT:
            raise GitopsError(Code.GIT_FAILED, f"{self.program} would write more than {MAX_OUTPUT} bytes")
        while len(self._unread) < size:
            self._more()
        return self._taken(size)

    def close(self) -> None:
        """End the program."""
        self._close()

    def _taken(self, size: int) -> bytes:
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data

    def _more(self) -> None:
        """Wait for more of the response."""
        ready = self._selector.select(self._timeout_s)
        chunk = os.read(self._answers.fileno(), _CHUNK) if ready else b""
        if not chunk:
            raise GitopsError(Code.GIT_FAILED, f"{self.program} {'has ended' if ready else 'did not answer in time'}")
        self._unread += chunk


def _hang_up(process: subprocess.Popen[bytes], selector: selectors.BaseSelector, owner: int) -> None:
    """End a conversation, unless it belongs to the process from which this one was forked."""
    selector.close()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    if os.getpid() == owner:
        _end(process)
