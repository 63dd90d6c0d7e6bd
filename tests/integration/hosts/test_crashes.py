"""Law L3: an action that is killed at any point, and then done again, leaves what an undisturbed one leaves."""

from contextlib import suppress
from dataclasses import replace

import pytest

from gitops.core.errors import GitopsError
from gitops.hosts.script import Script
from tests.support.host_items import item
from tests.support.host_runs import POINT, DirectChannel, HostRun, KilledAt

pytestmark = pytest.mark.timeout(900)

# An item with its content, whether it is removed, and the commands before it in the folder `$at`.
ACTIONS = {
    "create file": (lambda at: item("file", f"{at}/a", content=b"new", owner="deploy", mode="0640"), b"new", False, ""),
    "change file": (lambda at: item("file", f"{at}/a", content=b"new"), b"new", False, "echo old > $at/a"),
    "replace directory": (lambda at: item("file", f"{at}/a", content=b"new"), b"new", False, "mkdir -p $at/a/b"),
    "remove file": (lambda at: item("file", f"{at}/a", content=b"new"), b"", True, "printf new > $at/a"),
    "create link": (lambda at: item("symlink", f"{at}/a", to="x"), b"", False, ""),
    "change link": (lambda at: item("symlink", f"{at}/a", to="x"), b"", False, "ln -s y $at/a"),
    "create directory": (lambda at: item("directory", f"{at}/a", owner="deploy", mode="0750"), b"", False, ""),
    "change directory": (lambda at: item("directory", f"{at}/a", owner="deploy", mode="0750"), b"", False, "mkdir $at/a"),
    "remove tree": (lambda at: item("directory", f"{at}/a", on_remove="tree"), b"", True, "mkdir -p $at/a/b; touch $at/a/c"),
    "create group": (lambda _: item("group", "crash"), b"", False, "groupdel crash 2>/dev/null || :"),
    "create user": (lambda _: item("user", "crasher", groups=["ops"]), b"", False, "userdel crasher 2>/dev/null || :"),
}  # fmt: skip


def points_of(script: Script) -> list[str]:
    return POINT.findall(script.text)


def state(machine, at):
    names = "crash crasher"
    return machine.sh(
        f"cd {at}; find . -mindepth 1 -printf '%p %y %m %U %G %s %l\\n' | sort; cat a 2>/dev/null || :;"
        f"getent passwd {names} | cut -d: -f1,6,7 || :; getent group {names} | cut -d: -f1,4 || :;"
        "id -Gn crasher 2>/dev/null || :"
    )


def prepared(machine, name, commands):
    at = f"/srv/crash/{name.replace(' ', '-')}"
    machine.sh(f"getent group ops >/dev/null || groupadd -r ops; at={at}; rm -rf $at; mkdir -p $at; {commands}")
    return at


def is_killed(killed, script):
    """Run the script at most to its fault point, which not every action reaches."""
    with suppress(GitopsError):
        killed.run(script)
        return False
    return True


@pytest.mark.parametrize("name", ACTIONS)
def test_killed_anywhere_and_run_again(machine, name):
    make, content, remove, commands = ACTIONS[name]
    channel = DirectChannel(machine)
    run = HostRun(channel, "crashes")
    assert run.take_over().done
    at = prepared(machine, name, commands)
    script = run.script(make(at), content, remove=remove)
    assert run.perform(script).done
    undisturbed = state(machine, at)
    reached = set()
    for point in points_of(script):
        for again in ("by the same run", "by the next run"):
            prepared(machine, name, commands)
            one = run.script(make(at), content, remove=remove)
            killed = KilledAt(channel, point)
            if again == "by the same run":
                run.channel = killed
                assert run.perform(one).done, (point, again)
                run.channel = channel
            else:
                if is_killed(killed, one):
                    reached.add(point)
                run = HostRun(channel, "crashes")
                assert run.take_over().done
                if not remove or run.seen(make(at))[0].sight != "absent":
                    assert run.apply(make(at), content, remove=remove).done, (point, again)
            assert state(machine, at) == undisturbed, (point, again)
    assert len(reached) >= 4, reached


def test_the_result_of_an_action_survives_the_connection(channel, machine):
    """The connection is lost after the action ended: it is not done twice."""
    run = HostRun(channel, "crashes")
    assert run.take_over().done
    at = prepared(machine, "twice", "")
    script = run.script(item("file", f"{at}/a", content=b"x"), b"x")
    with pytest.raises(GitopsError):
        KilledAt(channel, "after_result").run(script)
    machine.run("sh", "-c", f"echo theirs > {at}/a")
    assert run.perform(script).done
    assert machine.sh(f"cat {at}/a") == "theirs\n"


def test_an_older_run_is_fenced_off(channel, machine):
    older = HostRun(channel, "crashes")
    assert older.take_over().done
    at = prepared(machine, "fenced", "")
    one = item("file", f"{at}/a", content=b"x")
    script = older.script(one, b"x")
    newer = HostRun(channel, "crashes")
    assert newer.take_over().done
    result = older.perform(script)
    assert (result.done, result.code, result.begun) == (False, "host_fenced", False)
    assert older.take_over().code == "host_fenced"
    assert machine.sh(f"ls {at}") == ""
    assert newer.apply(one, b"x").done


@pytest.mark.parametrize("point", ["before_fence", "after_fence"])
def test_taking_over_is_interrupted(channel, point):
    run = HostRun(channel, f"fence-{point}")
    run.channel = KilledAt(channel, point)
    assert run.take_over().done
    assert run.apply(item("group", "ops")).done


def test_a_living_action_of_a_dead_run_is_waited_for(channel, machine):
    run = HostRun(channel, "crashes")
    assert run.take_over().done
    at = prepared(machine, "alive", f"mkfifo {'$at'}/go")
    one = item("file", f"{at}/a", content=b"x", check=["cat", f"{at}/go"])
    script = run.script(one, b"x")
    waiting = replace(script, text=script.text.replace("8>&- 9>&-", ""))
    dying = replace(waiting, text=waiting.text.replace("as timeout", "pkill -9 -f '^sshd: deploy'; as timeout"))
    with pytest.raises(GitopsError) as failure:
        channel.run(dying)
    assert failure.value.code == "host_connection_lost"
    following = HostRun(channel, "crashes")
    busy = following.take_over(patience_s=1)
    assert (busy.done, busy.code) == (False, "host_busy")
    machine.sh(f"echo > {at}/go")
    assert following.take_over().done
    assert machine.sh(f"cat {at}/a") == "x"


def test_a_host_has_one_owner(channel):
    run = HostRun(channel, "owned")
    assert run.take_over().done
    other = HostRun(channel, "owned")
    other.owner = replace(other.owner, repository="another")
    result = other.take_over()
    assert (result.done, result.code) == (False, "host_owned_by_other")
