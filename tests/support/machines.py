"""Real Debian machines on this one: a root file system of their own, an SSH server, accounts, dpkg, and systemd as an option.

    with Machines(folder) as machines:
        web = machines.start("web1")
        web.connection(), web.root / "etc/hostname", web.run("id", "deploy")

Debian's base system is unpacked once by debootstrap into the cache folder of this program. Each machine is an overlay on it in
namespaces of its own, with its own machine id, host key and name. The account `deploy` may use `sudo` without a password, and
`asks` only with one. Both log in with the key of `machines.identity`.

A machine has systemd as its first process if it is started with `systemd=True`: then it has a network and a cgroup of its own
too. It needs cgroup2. Everything needs root and the packages in `_PROGRAMS`; a test is skipped where they are missing.

Source: unshare(1), https://systemd.io/CONTAINER_INTERFACE/
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, Any, Self

import pytest

from gitops.cluster.model.host import Connection, Transport

_RELEASE = "bookworm"
_PACKAGES = "openssh-server,sudo,systemd,systemd-sysv,dbus"
_VERSION = 1  # of `_FINISH`: another number makes another base
_CACHE = Path.home() / ".cache" / "cluster-gitops" / "machines"
# Programs, with the packages that bring them.
_PROGRAMS = {
    "debootstrap": "debootstrap",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
}
_PORT = 22022
_FINISH = r"""
rm -f /etc/ssh/ssh_host_* /etc/machine-id /var/lib/dbus/machine-id /var/cache/apt/archives/*.deb
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
for name in deploy asks; do
    useradd --create-home --shell /bin/sh --password '*' "$name"
    install -d -m 700 -o "$name" -g "$name" "/home/$name/.ssh"
done
printf 'deploy ALL=(ALL:ALL) NOPASSWD: ALL\nasks ALL=(ALL:ALL) ALL\n' > /etc/sudoers.d/gitops
chmod 440 /etc/sudoers.d/gitops
# They look at disks of the machine below, or take the lock of dpkg when it suits them.
for unit in e2scrub_reap.service e2scrub_all.timer apt-daily.timer apt-daily-upgrade.timer; do
    ln -sf /dev/null "/etc/systemd/system/$unit"
done
"""
_START = r"""
base=$1 top=$2 name=$3 place=$4 kind=$5 key=$6
mount -t overlay overlay -o "lowerdir=$base,upperdir=$top/upper,workdir=$top/work" "$top/root"
r=$top/root
mount -t proc proc "$r/proc"
mount -t tmpfs tmpfs "$r/run"
mount -t tmpfs tmpfs "$r/tmp"
chmod 1777 "$r/tmp"
mount -t tmpfs tmpfs "$r/dev"
for node in null zero full random urandom tty; do
    : > "$r/dev/$node"
    mount --bind "/dev/$node" "$r/dev/$node"
done
mkdir "$r/dev/pts" "$r/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$r/dev/pts"
mount -t tmpfs tmpfs "$r/dev/shm"
ln -s pts/ptmx "$r/dev/ptmx"
ln -s /proc/self/fd "$r/dev/fd"
mkdir "$r/run/sshd"
tr -d - < /proc/sys/kernel/random/uuid > "$r/etc/machine-id"
hostname "$name"
printf '%s\n' "$name" > "$r/etc/hostname"
printf '127.0.0.1 localhost %s\n' "$name" > "$r/etc/hosts"
for user in deploy asks; do
    chroot "$r" install -m 600 -o "$user" -g "$user" /dev/null "/home/$user/.ssh/authorized_keys"
    printf '%s\n' "$key" > "$r/home/$user/.ssh/authorized_keys"
done
chroot "$r" ssh-keygen -q -t ed25519 -N '' -C '' -f /etc/ssh/ssh_host_ed25519_key
if [ "$kind" = plain ]; then
    exec chroot "$r" /usr/sbin/sshd -D -e -p 22022 -o "ListenAddress=$place" -o LogLevel=INFO
fi
mount -t sysfs sysfs "$r/sys"
mount -t cgroup2 cgroup2 "$r/sys/fs/cgroup"
ip link set lo up
printf 'prepared\n' >&2
read -r go
ip link set "$place" name eth0
ip addr add "$go/24" dev eth0
ip link set eth0 up
export container=other
exec chroot "$r" /lib/systemd/systemd --system
"""


class Machine:
    """A running machine. `root` is its file system as this machine's root sees it."""

    def __init__(self, name: str, address: str, port: int, pid: int) -> None:
        """`pid` is its first process, as seen from here."""
        self.name, self.address, self.port, self.pid = name, address, port, pid
        self.root = Path(f"/proc/{pid}/root")
        kind, key, *_ = (self.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()
        self.key = f"host.{name} {kind} {key}"

    def connection(self, **changes: Any) -> Connection:
        """How a cluster folder would declare it, as `deploy` who becomes root."""
        stated = {"address": self.address, "port": self.port, "user": "deploy", "become": "root", "keys": (self.key,)}
        return Connection(name=self.name, transport=Transport.SSH, **{**stated, **changes})

    def run(self, *argv: str, stdin: bytes = b"", check: bool = True) -> subprocess.CompletedProcess[bytes]:
        """Run a program on it as root, past everything that is tested."""
        spaces = ["nsenter", f"--target={self.pid}", "--all", f"--root={self.root}", "--wd=/"]
        clean = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
        words = [*spaces, "/usr/bin/env", "-C", "/", *argv]
        done = subprocess.run(words, input=stdin, capture_output=True, check=False, env=clean, timeout=120)
        assert not check or done.returncode == 0, (argv, done.stdout, done.stderr)
        return done

    def sh(self, script: str, *, check: bool = True) -> str:
        """Run a shell script on it as root; returns its output."""
        return self.run("sh", "-euc", script, check=check).stdout.decode()


class Machines:
    """Starts machines and ends them together. `folder` must not be on an overlay."""

    def __init__(self, folder: Path) -> None:
        """Skips the test if this machine cannot do it."""
        self._base = base()
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ended: list[Path] = []
        self.identity = folder / "identity"
        if not self.identity.exists():
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(self.identity)]
            subprocess.run(words, check=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._running):
            self.stop(name)

    def start(self, name: str, *, systemd: bool = False) -> Machine:
        """Start a machine. Returns once its SSH server answers."""
        top = self._folder / name
        for each in ("upper", "work", "root"):
            (top / each).mkdir(parents=True, exist_ok=True)
        with _free_number() as number:
            return self._start(name, top, number) if not systemd else self._start_systemd(name, top, number)

    def _unshared(self, name: str, top: Path, place: str, kind: str, *more: str) -> subprocess.Popen[bytes]:
        spaces = ["--mount", "--pid", "--fork", "--uts", "--ipc", *more, "--propagation", "private", "--kill-child"]
        key = self.identity.with_suffix(".pub").read_text().strip()
        words = ["unshare", *spaces, "sh", "-euc", _START, "sh", str(self._base), str(top), name, place, kind, key]
        pipe = subprocess.PIPE
        process = subprocess.Popen(words, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe)
        self._running[name] = process
        return process

    def _start(self, name: str, top: Path, number: int) -> Machine:
        address = f"127.0.77.{number}"
        process = self._unshared(name, top, address, "plain")
        _await(process, b"Server listening")
        return Machine(name, address, _PORT, _child(process))

    def _start_systemd(self, name: str, top: Path, number: int) -> Machine:
        groups = next((each for each in map(Path, _CGROUP2) if (each / "cgroup.procs").exists()), None)
        if groups is None:
            pytest.skip("this machine has no cgroup2, which systemd needs")
        own = groups / f"gitops-{os.getpid()}-{number}"
        own.mkdir()
        self._ended.append(own)
        before = (groups / _own_group(groups) / "cgroup.procs").resolve()
        (own / "cgroup.procs").write_text(str(os.getpid()))
        try:
            process = self._unshared(name, top, f"gv{number}", "systemd", "--net", "--cgroup")
        finally:
            before.write_text(str(os.getpid()))
        _await(process, b"prepared")
        pid = _child(process)
        for words in (
            f"link add gh{number} type veth peer name gv{number}",
            f"link set gv{number} netns {pid}",
            f"addr add 10.77.{number}.1/24 dev gh{number}",
            f"link set gh{number} up",
        ):
            subprocess.run(["ip", *words.split()], check=True)
        assert process.stdin is not None
        process.stdin.write(f"10.77.{number}.2\n".encode())
        process.stdin.flush()
        # Until it changes its root, the first process sees the files of this machine.
        while os.readlink(f"/proc/{pid}/root") == "/":  # noqa: PTH115 - it leads to another file system
            pass
        machine = Machine(name, f"10.77.{number}.2", 22, pid)
        # `--wait` waits for the end of the boot, but fails as long as the bus does not answer.
        while machine.sh("systemctl is-system-running --wait 2>&1 || :").strip() not in ("running", "degraded"):
            pass
        return machine

    def stop(self, name: str) -> None:
        """End a machine at once, as if its power failed. What is on its disk stays for the next start."""
        process = self._running.pop(name)
        process.kill()
        process.wait()
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        for group in self._ended:
            _remove_group(group)
        self._ended.clear()


_CGROUP2 = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


def _own_group(groups: Path) -> str:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    assert groups
    return next(line.removeprefix("0::/") for line in lines if line.startswith("0::"))


def _remove_group(group: Path) -> None:
    """Remove a cgroup and those in it, once their last processes are gone."""
    with suppress(OSError):
        (group / "cgroup.kill").write_text("1")
    for _ in range(200):
        for folder, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
        if not group.exists():
            return
        subprocess.run(["sleep", "0.01"], check=True)


def _child(process: subprocess.Popen[bytes]) -> int:
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def _await(process: subprocess.Popen[bytes], words: bytes) -> None:
    """Read the messages of a starting machine until one has these words."""
    assert process.stderr is not None
    seen = b""
    for line in process.stderr:
        seen += line
        if words in line:
            # The SSH server goes on to write there, and would stop once the pipe is full.
            threading.Thread(target=_drain, args=(process.stderr,)).start()
            return
    raise AssertionError(f"the machine did not start: {seen.decode(errors='replace')}")


def _drain(pipe: IO[bytes]) -> None:
    with pipe:
        deque(pipe, 0)


_numbers = count(1)


@contextmanager
def _free_number() -> Iterator[int]:
    """Yield the number of an address that no machine has, and keep others from taking it until the machine listens."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "addresses").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for number in _numbers:
            assert number < 255, "all addresses are taken"
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if probe.connect_ex((f"127.0.77.{number}", _PORT)) and not Path(f"/sys/class/net/gh{number}").exists():
                    break
        yield number


def base() -> Path:
    """Return the folder with Debian's base system, which is made first if it is missing. Skips the test if it cannot be."""
    if os.geteuid() != 0:
        pytest.skip("machines with file systems of their own need root")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for program, package in _PROGRAMS.items():
        if shutil.which(program) is None:
            pytest.skip(f"machines need the Debian package {package}")
    _CACHE.mkdir(parents=True, exist_ok=True)
    made = _CACHE / f"{_RELEASE}-{_VERSION}"
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _make(made)
    return made


def _make(made: Path) -> None:
    """Unpack the base system from the mirror that debootstrap uses by default, or from `DEBIAN_MIRROR`."""
    partial = made.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    mirror = [os.environ["DEBIAN_MIRROR"]] if "DEBIAN_MIRROR" in os.environ else []
    words = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _RELEASE, str(partial), *mirror]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        pytest.skip(f"debootstrap cannot unpack Debian: {done.stdout.decode(errors='replace')[-300:]}")
    subprocess.run(["chroot", str(partial), "sh", "-euc", _FINISH], check=True)
    partial.rename(made)


if __name__ == "__main__":
    sys.stdout.write(f"{base()}\n")
