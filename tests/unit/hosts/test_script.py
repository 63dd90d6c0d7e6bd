"""Law L4: a word that is quoted for a host is read back by every shell that a login can have."""

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.core.errors import RemoteError
from gitops.hosts.script import command_line, read_sections
from tests.support.effort import cases

_SHELLS = {"dash": ["dash", "-c"], "bash": ["bash", "-c"], "busybox": ["busybox", "sh", "-c"]}
_WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
_TRICKY = st.sampled_from(
    ["", "'", "'\\''", "$(reboot)", "`id`", "a b", "\n", "-n", "*", "~", "!x", "\\", '"', "#", "a=b"]
)


@pytest.mark.outside
@pytest.mark.parametrize("shell", sorted(_SHELLS))
@given(words=st.lists(_TRICKY | _WORDS, min_size=1, max_size=6))
@settings(max_examples=cases(25))
def test_quoting_round_trips(shell, words):
    argv = _SHELLS[shell]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"needs the Debian package {shell}")
    line = command_line(["printf", r"%s\0", *words])
    done = subprocess.run([*argv, line], capture_output=True, check=True, env={"LC_ALL": "C"})
    assert done.stdout.decode() == "".join(f"{word}\0" for word in words)


ANSWER = b"motd\n\nn0 begin\n\nn0 paths\na\n\nn0x fake\nb\n\nn0 end\n"


def test_sections_are_read_by_their_nonce():
    assert read_sections(ANSWER, "n0", "web1") == {"paths": b"a\n\nn0x fake\nb\n"}


@given(st.integers(0, len(ANSWER) - 1))
def test_every_shorter_answer_is_incomplete(length):
    with pytest.raises(RemoteError) as failure:
        read_sections(ANSWER[:length], "n0", "web1")
    assert failure.value.code == "host_connection_lost"
