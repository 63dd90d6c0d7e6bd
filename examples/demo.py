"""A story in five acts: a cluster, a change, a deletion, a failed merge, an audit. Its folder is kept, so you can experiment.

    python examples/demo.py [--verbose] [FOLDER]        (default: demo/ beside this repository's README)

Every line with a `$` is a command that really runs, followed by the output that it really prints. Alice writes changes, Bob
approves, and the bot of the server applies them and signs the ledger. Without `--verbose` the story leaves out commands that only
prepare the next one, shortens ids, and cuts long output.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "company-brain"
MARK = ".gitops-demo"

CONFIG = """\
version: 1
repository: company-brain-demo
clusters:
  - name: brain
    path: cluster
    branch: main
    environment: production
ledger:
  signers: [bot@brain.example]
approvals:
  allowed_signers: .gitops/allowed_signers
  approvers: [alice@brain.example, bob@brain.example]
apply:
  parallel: 2
preview: {enabled: true, scratch: previews}
serve: {record: counts, record_keys: ["@RECORD_KEY@"]}
"""

ACT = """\
#!/bin/sh
# Act as a person of the sandbox, in their clone: ./as alice [COMMAND...]; without a command, in a shell.
folder=$(cd "$(dirname "$0")" && pwd) || exit
who=${1:-}
[ -n "$who" ] && [ -d "$folder/home/$who" ] && [ -d "$folder/$who" ] || { echo "usage: ./as alice|bob [COMMAND...]" >&2; exit 2; }
shift
unset CI $(env | sed -n 's/^\\(GIT_[A-Z_]*\\)=.*/\\1/p')
export HOME="$folder/home/$who" GIT_CONFIG_NOSYSTEM=1 PATH=@PATH@:"$PATH"
cd "$folder/$who" || exit
[ $# -gt 0 ] || { echo "You are $who now; exit ends that."; set -- "${SHELL:-sh}"; }
exec "$@"
"""

# Who called `find_person` on each of the last days, and how often.
CALLS = (("act-agent", 40), ("act-reader", 3))

CONTACTS = """\
{"type": "Contact", "data": {"name": "Erin", "phone": "555-0101"}}
{"type": "Contact", "data": {"name": "Frank", "phone": "555-0102"}}
{"type": "Contact", "data": {"name": "Grace", "note": "moved to Oslo"}}
"""

# Show a plan comment only up to its folded details.
_FOLDED = re.compile(r"^ *(<details>|---$)")
# The header of a file in a diff. The line with `+++` is enough.
_HEADER = re.compile(r"^    (diff --git|index|---) .")
_LONG_ID = re.compile(r"\b([0-9a-f]{8}|01[0-9A-Z]{6})([0-9a-f]{24,}|[0-9A-Z]{18})\b")

NEXT = """\
  cd @FOLDER@
  ./as alice git fetch --quiet origin
  ./as alice git switch --create tags origin/main
  printf '\\nnode Tag {\\n    name: String @key\\n}\\n' >> alice/cluster/knowledge/schema.pg
  ./as alice git commit --all --message 'Add tags'
  ./as alice gitops request open
  ./as bob gitops request list
  ./as bob gitops request diff 5
  ./as bob gitops request comment 5 'Good idea.'
  ./as bob gitops request merge 5
  ./as bob gitops graph show knowledge --config cluster
  ./as alice"""


class Demo:
    """The sandbox, and how to run commands in it."""

    def __init__(self, folder: Path, *, verbose: bool) -> None:
        self.folder, self.verbose = folder, verbose
        self.server = folder / "server.git"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        kept = {
            k: v for k, v in os.environ.items() if (not k.startswith("GIT_") and k != "CI") or k == "GIT_DEFAULT_HASH"
        }
        # Each person has a separate home folder, so that settings of this machine's user have no effect.
        self.env = {**kept, "PATH": path, "GIT_CONFIG_NOSYSTEM": "1", "NO_COLOR": "1"}

    def run(
        self, who: str, *command: str, expect: int = 0, lines: int = 9, since: str = "", at: str = "", last: str = ""
    ) -> str:
        """Run a command as a person, print it and its output, and check its exit code.

        Without `--verbose` it prints at most `lines` of the output, from the first one with `since` up to the folded details,
        and the end of the line with `last`, from there.
        """
        self.show(f"{who}$ {shlex.join(command)}")
        env = {**self.env, "HOME": str(self.folder / "home" / who)}
        done = subprocess.run(
            command,
            cwd=self.folder / (at or who),
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        printed = [f"    {line}".rstrip() for line in done.stdout.rstrip().splitlines()]
        if not self.verbose:
            printed = [line for line in printed if not _HEADER.match(line)]
        if done.returncode != expect:
            sys.exit(f"{done.stdout}\nthe command ended with {done.returncode}, expected {expect}")
        kept = printed
        if not self.verbose:
            kept = kept[next((place for place, line in enumerate(kept) if since in line), 0) :]
            kept = kept[: next((place for place, line in enumerate(kept) if _FOLDED.search(line)), len(kept))][:lines]
        named = [f"    … {line[line.index(last) :]}" for line in printed if last and last in line]
        more = len(printed) - len(kept) - len(named)
        self.show(*kept, *([f"    (and {more} more lines)"] if more > 1 else []), *named)
        return done.stdout

    def prepare(self, who: str, *command: str, at: str = "") -> str:
        """Run a command that only prepares the next one, which is part of the story with `--verbose` only."""
        if self.verbose:
            return self.run(who, *command, at=at)
        env = {**self.env, "HOME": str(self.folder / "home" / who)}
        run = subprocess.run(
            command, cwd=self.folder / (at or who), env=env, check=True, capture_output=True, text=True
        )
        return run.stdout

    def show(self, *lines: str) -> None:
        """Print lines, with shortened ids unless the story is verbose."""
        for line in lines:
            print(line if self.verbose else _LONG_ID.sub(r"\1…", line), flush=True)

    def edit(self, path: str, old: str, new: str) -> None:
        """Change a file in Alice's clone."""
        file = self.folder / "alice" / path
        text = file.read_text()
        if old not in text:
            sys.exit(f"{path} does not have the line that the demo changes")
        file.write_text(text.replace(old, new, 1))

    def propose(self, branch: str, message: str, *paths: str) -> None:
        """Show Alice's edits as a diff, commit them and push them: a pushed branch is a change request."""
        self.run("alice", "git", "diff", "--unified=0", *(["--", *paths] if paths else []), lines=22)
        self.prepare("alice", "git", "commit", "--quiet", "--all", "--message", message)
        self.run("alice", "git", "push", "--quiet", "origin", branch)

    def start(self, branch: str) -> None:
        """Begin a branch of Alice's clone at the newest state of main."""
        self.prepare("alice", "git", "fetch", "--quiet", "origin")
        self.prepare("alice", "git", "switch", "--quiet", "--create", branch, "origin/main")


def act(number: int, title: str, notice: str) -> None:
    """Print the headline of an act, and what to look at."""
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() and "NO_COLOR" not in os.environ else ("", "")
    print(f"\n{bold}=== Act {number} of 5: {title}{plain}\n    {notice}\n", flush=True)


def say(text: str) -> None:
    print(f"\n{text}", flush=True)


def prepare(demo: Demo) -> None:
    """Make keys, and a bare repository with the settings of its bot."""
    for who in ("bot", "alice", "bob", "server"):
        home = demo.folder / "home" / who
        home.mkdir(parents=True)
        key = home / "key"
        config = f"[user]\n\tname = {who}\n\temail = {who}@brain.example\n\tsigningKey = {key}\n"
        config += "[gpg]\n\tformat = ssh\n[commit]\n\tgpgSign = true\n"  # as `gitops init` sets it in a clone
        (home / ".gitconfig").write_text(config + "[init]\n\tdefaultBranch = main\n[advice]\n\tdetachedHead = false\n")
        comment = f"{who}@brain.example"
        demo.prepare("bot", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(key), at=".")
    demo.prepare("bot", "git", "init", "--quiet", "--bare", "server.git", at=".")
    for setting, value in (
        ("user.name", "bot"),
        ("user.email", "bot@brain.example"),
        ("user.signingKey", str(demo.folder / "home" / "bot" / "key")),
        ("gitops.root", str(demo.folder / "data")),
        ("gitops.writers", "alice@brain.example"),
    ):
        demo.prepare("bot", "git", "config", setting, value, at="server.git")


def first_push(demo: Demo) -> None:
    """Push the cluster, its rules and its keys for the first time."""
    demo.run("bot", "gitops", "hook", "install", at="server.git")
    demo.prepare("alice", "git", "clone", "--quiet", "server.git", "alice", at=".")
    clone = demo.folder / "alice"
    # The third act deletes the graph of these tests.
    shutil.copytree(EXAMPLE, clone / "cluster", ignore=shutil.ignore_patterns("contacts.test.yaml"))
    (clone / ".gitops").mkdir()
    public = " ".join((demo.folder / "home" / "server" / "key.pub").read_text().split()[:2])
    (clone / "gitops.yaml").write_text(CONFIG.replace("@RECORD_KEY@", public))
    lines = []
    for who in ("bot", "alice", "bob"):
        kind, blob = (demo.folder / "home" / who / "key.pub").read_text().split()[:2]
        lines.append(f'{who}@brain.example namespaces="git" {kind} {blob}\n')
    (clone / ".gitops" / "allowed_signers").write_text("".join(lines))
    demo.run("alice", "gitops", "validate", "--config", "cluster")
    demo.prepare("alice", "git", "add", "--all")
    demo.prepare("alice", "git", "commit", "--quiet", "--message", "Start the company brain")
    demo.run("alice", "git", "push", "--quiet", "origin", "HEAD:main")
    demo.prepare("bob", "git", "clone", "--quiet", "server.git", "bob", at=".")
    say("Both graphs exist now. Alice loads data and asks one of them a stored query:")
    demo.run("alice", "gitops", "graph", "load", "knowledge", "cluster/seed.jsonl", "--config", "cluster", lines=1)
    (demo.folder / "contacts.jsonl").write_text(CONTACTS)
    demo.run("alice", "gitops", "graph", "load", "legacy", "../contacts.jsonl", "--config", "cluster", lines=1)
    ask = ("gitops", "graph", "query", "knowledge", "--config", "cluster")
    demo.run("alice", *ask, "search_documents", "--param", "q=compact bytes")


def record_calls(demo: Demo) -> None:
    """Write the signed record that a query server would have written, so that the demo needs no libraries of servers."""
    from datetime import timedelta

    from gitops.cluster.ledger.use import UseRecords, use_rules
    from gitops.cluster.model.use import USE_NAMESPACE, UseCount, UseRecord
    from gitops.database.storage.local import LocalStore
    from gitops.git.signatures import sign, verify_detached
    from gitops.repository.wiring.local import LocalRepository
    from gitops.repository.wiring.system import RandomIds, SystemClock

    local = LocalRepository(str(demo.server), environ={**demo.env, "HOME": str(demo.folder / "home" / "bot")})
    view = local.ledger(local.rule()).view()
    rules, state = use_rules(view), view.state
    if rules is None or state is None:
        sys.exit("the ledger does not say that calls are recorded")
    incarnation = str(state.observations["graph.knowledge"]["incarnation"])
    records = UseRecords(lambda: LocalStore(demo.folder / "data" / "brain"), verify_detached)
    key, now = str(demo.folder / "home" / "server" / "key"), SystemClock().now()
    for back in range(8):
        day = now - timedelta(days=back)
        at = f"{day - timedelta(hours=2):%Y-%m-%dT%H:%M:%SZ}"
        counts = [UseCount("0" * 64, "find_person", ("slug: text",), who, calls, 0, at) for who, calls in CALLS]
        record = UseRecord(
            repository=rules.repository,
            cluster=rules.cluster,
            graph="knowledge",
            incarnation=incarnation,
            server="demo",
            segment=RandomIds().ulid(),
            day=day.date().isoformat(),
            clients=rules.clients,
            floor=0,
            knows=(),
            counts=tuple(sorted(counts)),
        )
        records.write(record, lambda text: sign(text, key=key, namespace=USE_NAMESPACE))


def breaking_change(demo: Demo) -> None:
    """A change that breaks clients: planned, tested, previewed on the live data, applied; the data stays in earlier versions."""
    record_calls(demo)
    demo.start("team-mission")
    demo.edit("cluster/knowledge/schema.pg", "    founded: Date?\n", "    mission: String?\n")
    demo.edit("cluster/knowledge/queries/people.gq", "$p.role, $p.email, $p.joined", "$p.role, $p.joined")
    demo.edit("cluster/knowledge/queries/reads.test.yaml", " p.email: emil@brain.example,", "")
    demo.edit("cluster/policies/knowledge.policy.yaml", ', "act-agent"]', "]")
    demo.edit(
        "cluster/policies/access.test.yaml", "actors: [act-reader, act-agent], query", "actors: [act-reader], query"
    )
    demo.propose("team-mission", "Give teams a mission instead of a birthday", "cluster/knowledge/*.[gp][gq]")
    # The bot tries the change on a copy of the live graph, and adds the result to the comment.
    demo.run("bot", "gitops", "bot", "preview", at="server.git", lines=1)
    demo.run("alice", "gitops", "request", "show", "1", since="**", lines=9)
    say("Further down, the comment says who loses access, and what the query returned for live values:")
    demo.run("alice", "gitops", "request", "show", "1", since="**`READ`**", lines=1)
    demo.run("alice", "gitops", "request", "show", "1", since="| query |", lines=3)
    demo.run("alice", "gitops", "request", "merge", "1", lines=2)
    say("The version before the merge still has the dropped property:")
    show = ("gitops", "graph", "show", "knowledge", "--config", "cluster", "--type", "Team", "--limit", "1")
    demo.run("alice", *show, "--at", "2")


def deletion(demo: Demo) -> None:
    """Delete a graph: no merge without an approval, none by the author, then one by Bob."""
    demo.start("retire-legacy")
    text = (demo.folder / "alice" / "cluster" / "cluster.yaml").read_text()
    demo.edit("cluster/cluster.yaml", text[text.index("  legacy:\n") : text.index("policies:\n")], "")
    demo.propose("retire-legacy", "Retire the legacy graph")
    say("Alice tries to merge without an approval. The bot refuses:")
    demo.run("alice", "gitops", "request", "merge", "2", expect=1, lines=1)
    say("Bob looks first. Without a terminal, this signs nothing and shows how to sign:")
    words = ("gitops", "approve", "graph.legacy", "--request", "2")
    asked = demo.run("bob", *words, expect=2, lines=7, last=f"{' '.join(words[:3])} --rows")
    command = shlex.split(asked[asked.rindex(" gitops approve ") :].splitlines()[0])
    say("Alice runs this last command, but authors cannot approve their own changes:")
    demo.run("alice", *command, expect=1, since="ERROR", lines=1)
    say("Bob's approval counts, and the merge deletes the graph:")
    demo.run("bob", *command, lines=1)
    demo.run("alice", "gitops", "request", "merge", "2", lines=2)
    demo.prepare("bob", "git", "fetch", "--quiet", "origin")
    demo.run("bob", "gitops", "log", "--limit", "1", lines=3)


def failed_merge(demo: Demo) -> None:
    """Merge two changes of which one fails: neither is applied, and the next merge applies both."""
    demo.start("partners")
    demo.edit("cluster/cluster.yaml", "  knowledge:\n", "  partners:\n    schema: legacy/schema.pg\n  knowledge:\n")
    demo.edit("cluster/knowledge/schema.pg", "    mission: String?\n", "    mission: String?\n    motto: String?\n")
    demo.propose("partners", "Add a graph of partners and a motto of teams")
    say("Someone has left files where the new graph belongs, so one of the two changes must fail:")
    demo.run("bot", "cp", "-R", "data/brain/graphs/knowledge.omni", "data/brain/graphs/partners.omni", at=".")
    demo.run("alice", "gitops", "request", "merge", "3", expect=1, lines=2)
    demo.run("alice", "gitops", "request", "show", "3", since="### Changeset", lines=4)
    say("The motto was rolled back. Alice renames the new graph, and the next merge applies both changes:")
    demo.start("contacts")
    demo.edit("cluster/cluster.yaml", "  partners:\n", "  contacts:\n")
    demo.propose("contacts", "Call the new graph contacts")
    demo.run("alice", "gitops", "request", "merge", "4", lines=2)
    demo.run("alice", "gitops", "graph", "show", "contacts", "--config", "cluster")


def audit(demo: Demo) -> None:
    """Read the ledger with git, verify it offline in a mirror, then change one byte of the mirror."""
    demo.prepare("bob", "git", "fetch", "--quiet", "origin")
    log = ("git", "log", "--graph", "--format=%h %an: %s", "origin/gitops/ledger/brain")
    demo.run("bob", *log, since="approve(brain)", lines=5)
    demo.prepare("bob", "git", "clone", "--quiet", "--mirror", "server.git", "mirror.git", at=".")
    (demo.folder / "auditor").mkdir()
    say("An auditor needs only a clone:")
    demo.run("auditor", "gitops", "audit", "--repo", "../mirror.git")
    say("Now an attacker changes one byte of a stored query in the newest entry of that clone:")
    script = (
        "tree=$(git rev-parse gitops/ledger/brain^{tree}) && "
        "blob=$(git ls-tree -r --name-only $tree __cluster/resources/query | head -n 1) && "
        "export GIT_INDEX_FILE=$PWD/tampered && git read-tree $tree && "
        "new=$(git cat-file blob $tree:$blob | sed '1s/./X/' | git hash-object -w --stdin) && "
        "git update-index --cacheinfo 100644,$new,$blob && "
        'git cat-file commit gitops/ledger/brain | sed "1s/.*/tree $(git write-tree)/" | '
        "git hash-object -t commit -w --stdin"
    )
    forged = demo.prepare("bob", "sh", "-c", script, at="mirror.git").strip()
    demo.prepare("bob", "git", "update-ref", "refs/heads/gitops/ledger/brain", forged, at="mirror.git")
    demo.run("auditor", "gitops", "audit", "--repo", "../mirror.git", expect=1, lines=2)


ACTS = (
    (first_push, "a push creates the graphs", "The server is a plain Git repository. Its hooks run the bot."),
    (
        breaking_change,
        "every change gets a plan",
        "Read the plan comment: it says whom and what the change breaks, before the merge.",
    ),
    (
        deletion,
        "deleting data needs a second person",
        "Watch who may approve: a signature covers exactly this deletion.",
    ),
    (
        failed_merge,
        "a merge is applied completely or not at all",
        "Two changes are merged together, and one of them fails.",
    ),
    (audit, "git is the audit trail", "Everything that was applied is a signed commit. One changed byte is found."),
)


def main() -> None:
    """Play the five acts in a new folder, and say how to continue in it."""
    parser = argparse.ArgumentParser(description="play the demo in a folder that is kept")
    parser.add_argument("--verbose", action="store_true", help="print every command and all output")
    parser.add_argument(
        "folder", nargs="?", default=str(ROOT / "demo"), help="a new folder, or that of an earlier demo"
    )
    options = parser.parse_args()
    started = time.monotonic()
    folder = Path(options.folder).resolve()
    if folder.exists() and not (folder / MARK).exists():
        sys.exit(f"{folder} exists and is not a sandbox of this demo; name another folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    demo = Demo(folder, verbose=options.verbose)
    print(
        "Alice writes changes, Bob approves them, and the bot of a server applies them. Every command below really runs."
    )
    prepare(demo)
    for number, (play, title, notice) in enumerate(ACTS, start=1):
        act(number, title, notice)
        play(demo)
    person = folder / "as"
    person.write_text(ACT.replace("@PATH@", shlex.quote(str(Path(sys.executable).parent))))
    person.chmod(0o755)
    print(f"\nDone in {time.monotonic() - started:.0f} s. To see every command, run: make demo VERBOSE=1")
    print("The folder is kept. To act as alice or bob in it, use ./as, for example:\n")
    print(NEXT.replace("@FOLDER@", shlex.quote(str(folder))))
    demo.prepare("bot", "gitops", "report", "--repo", "server.git", "--output", "report", at=".")
    print(f"\nTo see the cluster and its ledger in a browser, open {(folder / 'report' / 'index.html').as_uri()}")


if __name__ == "__main__":
    main()
