"""Files, directories and links on a real machine: what is changed, what is refused, and what is left after a failure."""

import pytest

from gitops.cluster.hosts.compare import Sight, differing
from gitops.cluster.model.host import env_file
from gitops.core.canonical import digest
from gitops.hosts.channel import open_channel
from tests.support.host_items import item
from tests.support.host_runs import HostRun

pytestmark = pytest.mark.timeout(900)
HOSTILE = b"'\"$(touch /no)`id`\n\0\xff\\n" * 50


@pytest.fixture(scope="module")
def run(channel):
    made = HostRun(channel)
    assert made.take_over().done
    return made


@pytest.fixture
def place(machine, request):
    """A new directory of root on the machine."""
    path = f"/srv/{request.node.name.replace('[', '-').replace(']', '')}"
    machine.run("mkdir", "-p", path)
    return path


def file(path, content, **more):
    return item("file", path, content=content, **more)


def tree(machine, path):
    """Everything below a path, with its type, permissions, owner, size and target."""
    return machine.sh(f"cd {path}; find . -printf '%p %y %m %U %G %s %l\\n' | sort")


def refusal(result):
    assert not result.done
    return result.code, result.begun


def test_a_file_is_created_changed_and_removed(run, machine, place):
    path = f"{place}/a.conf"
    one = file(path, HOSTILE, owner="deploy", group="asks", mode="0640")
    assert run.apply(one, HOSTILE).done
    assert machine.run("cat", path).stdout == HOSTILE
    assert differing(one, run.seen(one)[0]) == ()
    two = file(path, b"two", mode="0600")
    assert run.apply(two, b"two").done
    assert tree(machine, place).split("\n")[1] == "./a.conf f 600 0 0 3 "
    assert machine.run("cat", f"/var/lib/cluster-gitops/acts/backups/{digest(HOSTILE)}").stdout == HOSTILE
    assert run.apply(two, remove=True).done
    assert run.seen(two)[0].sight is Sight.ABSENT


ODD = 'it\'s a "name" $(touch x) * \\ -n'


@pytest.mark.parametrize("kind", ["file", "env", "symlink", "directory"])
def test_only_the_named_path_changes(run, machine, place, kind):
    """A path is no pattern and no option, whatever it contains."""
    machine.run("sh", "-c", 'cd "$1"; echo kept > "its a name"; echo kept > x; mkdir -- -n', "sh", place)
    before = tree(machine, place)
    path = f"{place}/{ODD}"
    attributes = {"file": {"content": b""}, "symlink": {"to": "$(id) 'x'"}}.get(kind, {})
    one = item(kind, path, **attributes)
    assert run.apply(one).done
    added = set(tree(machine, place).split("\n")) - set(before.split("\n"))
    assert (
        {line for line in added if not line.startswith(". ")}
        == {line for line in added if line.startswith(f"./{ODD} ")}
        != set()
    )
    assert differing(one, run.seen(one)[0]) == ()
    assert run.apply(one, remove=True).done
    assert tree(machine, place) == before


def test_an_env_file_is_written_with_its_secret(run, machine, place):
    env = item("env", f"{place}/env", set={"PORT": "80"}, secrets={"TOKEN": "token"})
    content = env_file({"PORT": "80", "TOKEN": "s3cret"})
    assert run.apply(env, content).done
    found, before = run.seen(env)
    assert differing(env, found) == ()
    assert "s3cret" not in before
    assert before.endswith(found.attributes["keyed"])
    assert run.apply(env, env_file({"PORT": "80", "TOKEN": "n3w"})).done
    # Its values are in the file and in the backup, and in nothing else that an action leaves.
    assert machine.sh("grep -rl n3w /var/lib/cluster-gitops /run /tmp || :") == ""


def test_a_change_since_the_plan_is_not_overwritten(run, machine, place):
    path = f"{place}/a"
    one = file(path, b"one")
    script = run.script(one, b"one")
    machine.run("sh", "-c", f"echo theirs > {path}")
    assert refusal(run.perform(script)) == ("host_changed_meanwhile", False)
    for change in (f"chmod 600 {path}", f"rm {path}; ln -s /etc/passwd {path}", f"rm {path}; mkdir {path}"):
        script = run.script(one, b"one")
        machine.sh(change)
        assert refusal(run.perform(script)) == ("host_changed_meanwhile", False), change
    assert run.apply(one, b"one").done, "what the plan has seen is replaced, here a directory"


def test_a_failed_check_leaves_the_old_file(run, machine, place):
    path = f"{place}/sudoers"
    assert run.apply(file(path, b"# good\n", mode="0440"), b"# good\n").done
    before = tree(machine, place)
    result = run.apply(file(path, b"nonsense\n", mode="0440", check=["visudo", "-cf", "{}"]), b"nonsense\n")
    assert refusal(result) == ("host_check_failed", True)
    assert "syntax error" in result.detail
    assert tree(machine, place) == before


def test_a_full_disk_leaves_the_old_file_and_nothing_else(run, machine, place):
    machine.sh(f"mkdir {place}/small; mount -t tmpfs -o size=64k,mode=755 tmpfs {place}/small")
    path = f"{place}/small/a"
    assert run.apply(file(path, b"old"), b"old").done
    before = tree(machine, place)
    large = b"x" * 200_000
    result = run.apply(file(path, large), large)
    assert refusal(result) == ("host_action_failed", True)
    assert "No space left" in result.detail
    assert tree(machine, place) == before
    machine.sh(f"umount {place}/small")


def test_a_mounted_file_is_not_replaced(run, machine, place):
    machine.sh(f"echo a > {place}/real; echo a > {place}/hosts; mount --bind {place}/real {place}/hosts")
    before = tree(machine, place)
    assert refusal(run.apply(file(f"{place}/hosts", b"b"), b"b")) == ("host_path_mounted", True)
    assert tree(machine, place) == before
    machine.sh(f"umount {place}/hosts")


def test_a_reader_never_sees_a_part_or_other_permissions(run, machine, place):
    path = f"{place}/a"
    contents = [letter * 100_000 for letter in (b"a", b"b")]
    assert run.apply(file(path, contents[0], mode="0600"), contents[0]).done
    script = (
        f"exec >{place}/seen 2>&1; while [ ! -e {place}/stop ]; do"
        f" stat -c %a {path}; md5sum < {path}; done & echo $! > {place}/pid; while [ ! -s {place}/seen ]; do :; done"
    )
    machine.sh(script)
    for content in contents[::-1] * 3:
        assert run.apply(file(path, content, mode="0600"), content).done
    machine.sh(f"touch {place}/stop; tail --pid=$(cat {place}/pid) -f /dev/null")
    lines = machine.sh(f"cut -d' ' -f1 {place}/seen | sort -u").split()
    sums = machine.sh("for l in a b; do head -c 100000 /dev/zero | tr '\\0' $l | md5sum | cut -d' ' -f1; done").split()
    assert set(lines) <= {"600", *sums}
    assert {"600"} < set(lines)


HANDED_OVER = [
    ("chown deploy {place}/app", {}, "host_path_unsafe"),
    ("chmod 777 {place}/app", {}, "host_path_unsafe"),
    ("chown deploy:asks {place}/app; chmod 770 {place}/app", {"owner": "deploy"}, "host_path_unsafe"),
    ("chown deploy {place}/app", {"owner": "asks"}, "host_path_unsafe"),
    ("chown deploy {place}/app; rmdir {place}/app/sub; ln -s /etc {place}/app/sub", {"owner": "deploy"}, "host_path_unsafe"),
    ("rmdir {place}/app/sub", {}, "host_parent_missing"),
    ("rmdir {place}/app/sub; touch {place}/app/sub", {}, "host_parent_missing"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "attributes", "code"), HANDED_OVER)
def test_root_follows_no_path_that_others_control(run, machine, request, change, attributes, code):
    place = f"/srv/unsafe{HANDED_OVER.index((change, attributes, code))}"
    machine.sh(f"mkdir -p {place}/app/sub; {change.format(place=place)}")
    before, etc = tree(machine, place), tree(machine, "/etc")
    for one in (
        file(f"{place}/app/sub/gitops", b"x", **attributes),
        item("symlink", f"{place}/app/sub/gitops", to="/x"),
    ):
        if one.type == "symlink" and attributes.get("owner") != "deploy" and change == "chown deploy {place}/app":
            continue  # a link has no declared owner, so the owner of the directory makes it
        assert refusal(run.apply(one, b"x")) == (code, False)
    assert (tree(machine, place), tree(machine, "/etc")) == (before, etc)


def test_in_a_directory_of_the_owner_the_owner_acts(run, machine, place):
    machine.sh(f"install -d -o deploy -g deploy {place}/app")
    one = file(f"{place}/app/a", b"x", owner="deploy", group="deploy")
    assert run.apply(one, b"x").done
    assert differing(one, run.seen(one)[0]) == ()
    # The owner cannot give files away, and root does not do it in the owner's place.
    assert refusal(run.apply(file(f"{place}/app/b", b"x", owner="deploy", group="root"), b"x")) == (
        "host_action_failed",
        True,
    )
    assert machine.sh(f"ls -A {place}/app") == "a\n"


def test_links_of_root_are_followed(run, machine, place):
    machine.sh(f"mkdir {place}/real; ln -s real {place}/link")
    assert run.apply(file(f"{place}/link/a", b"x"), b"x").done
    assert machine.sh(f"cat {place}/real/a") == "x"


def test_a_directory_that_is_not_empty_stays(run, machine, place):
    folder = item("directory", f"{place}/app", mode="0750", owner="deploy")
    assert run.apply(folder).done
    assert differing(folder, run.seen(folder)[0]) == ()
    machine.run("touch", f"{place}/app/theirs")
    result = run.apply(folder, remove=True)
    assert (result.done, result.code, result.detail) == (
        True,
        "host_directory_not_empty",
        "the directory stays, because it has entries that were not declared: 1 entries",
    )
    machine.run("rm", f"{place}/app/theirs")
    assert run.apply(folder, remove=True).code is None
    assert machine.sh(f"ls -A {place}") == ""


def test_a_tree_is_removed_up_to_its_mounts(run, machine, place):
    folder = item("directory", f"{place}/app", on_remove="tree")
    machine.sh(f"mkdir -p {place}/app/a/b {place}/app/data; touch {place}/app/a/f; mount -t tmpfs tmpfs {place}/app/data;"
               f"touch {place}/app/data/kept")  # fmt: skip
    result = run.apply(folder, remove=True)
    assert (result.done, result.code) == (True, "host_directory_not_empty")
    assert machine.sh(f"cd {place}; find . -mindepth 1 | sort") == "./app\n./app/data\n./app/data/kept\n"
    machine.sh(f"umount {place}/app/data")
    assert run.apply(folder, remove=True).code is None
    assert machine.sh(f"ls -A {place}") == ""


def test_an_existing_file_keeps_its_content(run, machine, place):
    one = file(f"{place}/a", b"first", create_only=True, mode="0600")
    assert run.apply(one, b"first").done
    machine.run("sh", "-c", f"echo theirs > {place}/a; chmod 644 {place}/a")
    assert differing(one, run.seen(one)[0]) == ("mode",)
    assert run.apply(one, b"first").done
    assert machine.sh(f"cat {place}/a; stat -c %a {place}/a") == "theirs\n600\n"


def test_without_root_only_own_places_change(machine, opening, login):
    mine = HostRun(opening.enter_context(open_channel(machine.connection(become=None), {}, login)), "own")
    assert mine.take_over().done
    one = file("/home/deploy/a", b"x", owner="deploy", group="deploy")
    assert mine.apply(one, b"x").done
    assert differing(one, mine.seen(one)[0]) == ()
    assert refusal(mine.apply(file("/etc/gitops", b"x"), b"x")) == ("host_action_failed", True)
    assert machine.sh("ls -A /home/deploy/.cluster-gitops; stat -c %a /home/deploy/.cluster-gitops") == "own\n700\n"
