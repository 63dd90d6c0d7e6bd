"""One change to a real cluster, from the first push to a query of the server, in a sandbox that stays for your own experiments.

    python examples/demo.py [FOLDER]        (default: demo/ beside this repository's README)

Every line that starts with `$` is a command that is really run, followed by what it really prints. Three people work here:
alice writes changes, bob approves, and the bot of the server applies and signs the ledger.
"""

from __future__ import annotations

import json
import os
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

NEXT = """\
  cd @FOLDER@
  ./as alice git fetch --quiet origin
  ./as alice git switch --create tags origin/main
  printf '\\nnode Tag {\\n    name: String @key\\n}\\n' >> alice/cluster/knowledge/schema.pg
  ./as alice git commit --all --message 'Have tags'
  ./as alice gitops request open
  ./as bob gitops request list
  ./as bob gitops request diff 6
  ./as bob gitops request comment 6 'Good idea.'
  ./as bob gitops request merge 6
  ./as bob gitops graph show knowledge --config cluster
  ./as alice"""


class Demo:
    """The sandbox, and how to run commands in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = folder / "server.git"
        self.graph = folder / "data" / "brain" / "graphs" / "knowledge.omni"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") and k != "CI"}
        # Each person has a separate home folder, so that settings of this machine's user have no effect.
        self.env = {**kept, "PATH": path, "GIT_CONFIG_NOSYSTEM": "1", "NO_COLOR": "1"}

    def run(self, who: str, *command: str, expect: int = 0, shown: int = 0, at: str = "") -> str:
        """Run a command as a person, print it and its output (at most `shown` lines), and check its exit code."""
        folder = self.folder / (at or who)
        print(f"{who}$ {shlex.join(command)}", flush=True)
        env = {**self.env, "HOME": str(self.folder / "home" / who)}
        done = subprocess.run(
            command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        lines = done.stdout.rstrip().splitlines()
        for line in lines[:shown] if shown else lines:
            print(f"    {line}")
        if shown and len(lines) > shown:
            print(f"    ... {len(lines) - shown} more line(s)")
        if done.returncode != expect:
            if shown:
                print(done.stdout)
            sys.exit(f"the command ended with {done.returncode}, expected {expect}")
        return done.stdout

    def quietly(self, *command: str, cwd: Path | None = None, who: str = "bot") -> None:
        """Run a command of the setup without showing it."""
        env = {**self.env, "HOME": str(self.folder / "home" / who)}
        subprocess.run(command, cwd=cwd or self.folder, env=env, check=True, capture_output=True)

    def approve(self, who: str, *command: str, expect: int = 0) -> None:
        """Run the command that `gitops approve` without a terminal offers, once it has shown what it is about."""
        asked = self.run(who, "gitops", "approve", *command, expect=2)
        offered = asked[asked.rindex("run: gitops approve") + len("run: ") :].splitlines()[0]
        self.run(who, *shlex.split(offered), expect=expect)

    def edit(self, path: str, old: str, new: str) -> None:
        """Change a file in alice's clone, and print the change."""
        file = self.folder / "alice" / path
        text = file.read_text()
        if old not in text:
            sys.exit(f"{path} does not have the line that the demo changes")
        file.write_text(text.replace(old, new, 1))
        print(f"alice edits {path}: {old.strip().splitlines()[0]!r} -> {(new.strip() or 'nothing').splitlines()[0]!r}")


def step(title: str) -> None:
    print(f"\n=== {title}\n", flush=True)


def prepare(demo: Demo) -> None:
    """Keys, a bare repository with hooks, and two clones."""
    for who in ("bot", "alice", "bob"):
        home = demo.folder / "home" / who
        home.mkdir(parents=True)
        key = home / "key"
        demo.quietly("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{who}@brain.example", "-f", str(key))
        config = f"[user]\n\tname = {who}\n\temail = {who}@brain.example\n\tsigningKey = {key}\n"
        config += "[gpg]\n\tformat = ssh\n[commit]\n\tgpgSign = true\n"  # as `gitops init` sets it in a clone
        (home / ".gitconfig").write_text(config + "[init]\n\tdefaultBranch = main\n[advice]\n\tdetachedHead = false\n")
    demo.quietly("git", "init", "--quiet", "--bare", str(demo.server))
    for setting, value in (
        ("user.name", "bot"),
        ("user.email", "bot@brain.example"),
        ("user.signingKey", str(demo.folder / "home" / "bot" / "key")),
        ("gitops.root", str(demo.folder / "data")),
    ):
        demo.quietly("git", "config", setting, value, cwd=demo.server)


def first_push(demo: Demo) -> None:
    """The cluster, its rules and its keys, pushed for the first time."""
    demo.quietly("git", "clone", "--quiet", str(demo.server), "alice", who="alice")
    clone = demo.folder / "alice"
    shutil.copytree(EXAMPLE, clone / "cluster")
    (clone / ".gitops").mkdir()
    (clone / "gitops.yaml").write_text(CONFIG)
    lines = []
    for who in ("bot", "alice", "bob"):
        kind, blob = (demo.folder / "home" / who / "key.pub").read_text().split()[:2]
        lines.append(f'{who}@brain.example namespaces="git" {kind} {blob}\n')
    (clone / ".gitops" / "allowed_signers").write_text("".join(lines))
    demo.run("alice", "gitops", "validate", "--config", "cluster")
    demo.run("alice", "git", "add", "--all")
    demo.run("alice", "git", "commit", "--quiet", "--message", "Start the company brain")
    demo.run("alice", "git", "push", "--quiet", "origin", "HEAD:main")
    demo.quietly("git", "clone", "--quiet", str(demo.server), "bob", who="bob")
    seed = str(EXAMPLE / "seed.jsonl")
    demo.run("bot", "gitops", "graph", "load", "knowledge", seed, "--root", str(demo.graph), at=".", shown=3)
    ask = ("gitops", "graph", "query", "knowledge", "--config", "cluster", "--root", str(demo.graph))
    demo.run("alice", *ask, "search_documents", "--param", "q=compact bytes")
    demo.run("alice", *ask, "cited_by", "--param", "slug=why-columns")


def soft_drop(demo: Demo) -> None:
    """A schema change with a soft drop: planned, merged, applied; the old version still reads what was dropped."""
    demo.run("alice", "git", "switch", "--quiet", "--create", "retire-founded")
    demo.edit("cluster/knowledge/schema.pg", "    founded: Date?\n", "    mission: String?\n")
    demo.run("alice", "git", "commit", "--quiet", "--all", "--message", "Give teams a mission instead of a birthday")
    demo.run("alice", "git", "push", "--quiet", "origin", "retire-founded")
    demo.run("alice", "gitops", "request", "show", "1")
    demo.run("alice", "gitops", "request", "merge", "1")
    demo.run("alice", "gitops", "request", "show", "1", shown=16)
    show = ("gitops", "graph", "show", "knowledge", "--root", str(demo.graph), "--type", "Team", "--limit", "2")
    demo.run("bot", *show, at=".")
    demo.run("bot", *show, "--at", "2", at=".")


def graph_delete(demo: Demo) -> None:
    """A graph delete: not merged without approval, nor with the author's own approval; applied with bob's."""
    demo.run("alice", "git", "fetch", "--quiet", "origin")
    demo.run("alice", "git", "switch", "--quiet", "--create", "retire-legacy", "origin/main")
    text = (demo.folder / "alice" / "cluster" / "cluster.yaml").read_text()
    block = text[text.index("  legacy:\n") : text.index("policies:\n")]
    demo.edit("cluster/cluster.yaml", block, "")
    demo.run("alice", "git", "commit", "--quiet", "--all", "--message", "Retire the legacy graph")
    demo.run("alice", "git", "push", "--quiet", "origin", "retire-legacy")
    demo.run("alice", "gitops", "request", "show", "2")
    print("\nalice tries to merge without waiting for an approval:\n")
    demo.run("alice", "gitops", "request", "merge", "2", expect=1)
    legacy = demo.graph.with_name("legacy.omni")
    demo.run("bot", "gitops", "graph", "show", "legacy", "--root", str(legacy), at=".")
    print("\nalice approves her own change, which does not count; bob's approval does:\n")
    demo.approve("alice", "graph.legacy", "--request", "2", expect=1)
    demo.approve("bob", "graph.legacy", "--request", "2")
    demo.run("alice", "gitops", "request", "merge", "2")
    demo.run("bot", "gitops", "graph", "show", "legacy", "--root", str(legacy), at=".", expect=1)
    demo.run("bob", "gitops", "request", "show", "2", shown=4)


def new_approver(demo: Demo) -> None:
    """A change of the approvers: planned, approved before the merge, merged, in force."""
    home = demo.folder / "home" / "carol"
    home.mkdir()
    demo.quietly("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "carol@brain.example", "-f", str(home / "key"))
    demo.run("alice", "git", "fetch", "--quiet", "origin")
    demo.run("alice", "git", "switch", "--quiet", "--create", "welcome-carol", "origin/main")
    kind, blob = (home / "key.pub").read_text().split()[:2]
    signers = demo.folder / "alice" / ".gitops" / "allowed_signers"
    signers.write_text(signers.read_text() + f'carol@brain.example namespaces="git" {kind} {blob}\n')
    demo.edit("gitops.yaml", "bob@brain.example]", "bob@brain.example, carol@brain.example]")
    demo.run("alice", "git", "commit", "--quiet", "--all", "--message", "Let carol approve, too")
    demo.run("alice", "git", "push", "--quiet", "origin", "welcome-carol")
    demo.run("bob", "gitops", "plan", "--request", "3")
    demo.approve("bob", "trust.brain", "--request", "3")
    demo.run("alice", "gitops", "request", "merge", "3", "--method", "squash")
    demo.run("alice", "gitops", "request", "show", "3")


def failed_merge(demo: Demo) -> None:
    """A merge of which one change fails: nothing of it is applied, and the next merge brings in the rest of it as well."""
    demo.run("alice", "git", "fetch", "--quiet", "origin")
    demo.run("alice", "git", "switch", "--quiet", "--create", "collect-ideas", "origin/main")
    folder = demo.folder / "alice" / "cluster" / "ideas"
    folder.mkdir()
    (folder / "schema.pg").write_text("node Idea {\n    slug: String @key\n    text: String\n}\n")
    demo.edit("cluster/cluster.yaml", "  knowledge:\n", "  ideas:\n    schema: ideas/schema.pg\n  knowledge:\n")
    demo.edit("cluster/knowledge/schema.pg", "    mission: String?\n", "    mission: String?\n    motto: String?\n")
    demo.run("alice", "git", "add", "--all")
    demo.run("alice", "git", "commit", "--quiet", "--message", "Collect ideas, and have a motto")
    demo.run("alice", "git", "push", "--quiet", "origin", "collect-ideas")
    print("\nBefore the merge, a backup of another graph is put where the new graph belongs:\n")
    demo.run("bot", "cp", "-R", str(demo.graph), str(demo.graph.with_name("ideas.omni")), at=".")
    demo.run("alice", "gitops", "request", "merge", "4", expect=1)
    demo.run("alice", "gitops", "request", "show", "4")
    demo.run("alice", "gitops", "changeset", "show", "--latest", "--config", "cluster")
    print(
        "\nThe new property is taken back, and the backup is untouched. The next merge has another name for the graph:\n"
    )
    demo.run("alice", "git", "fetch", "--quiet", "origin")
    demo.run("alice", "git", "switch", "--quiet", "--create", "keep-backup", "origin/main")
    demo.edit("cluster/cluster.yaml", "  ideas:\n", "  notebook:\n")
    demo.run("alice", "git", "commit", "--quiet", "--all", "--message", "Collect ideas in a notebook")
    demo.run("alice", "git", "push", "--quiet", "origin", "keep-backup")
    demo.run("alice", "gitops", "request", "merge", "5")
    demo.run("alice", "gitops", "changeset", "list", "--all", "--limit", "2", "--config", "cluster")


def ledger(demo: Demo) -> None:
    """The audit trail, for people and for the auditor."""
    demo.run("bob", "git", "fetch", "--quiet", "origin")
    demo.run("bob", "git", "log", "--graph", "--format=%h %an: %s", "origin/gitops/ledger/brain")
    demo.run("bob", "gitops", "log")
    demo.quietly("git", "clone", "--quiet", "--mirror", str(demo.server), "mirror.git", who="bob")
    (demo.folder / "auditor").mkdir()
    demo.run("auditor", "gitops", "audit", "--repo", "../mirror.git")


def tamper(demo: Demo) -> None:
    """One byte of the ledger is changed in the mirror; the auditor finds the entry."""
    print("\nAn attacker rewrites the newest entry of the mirror, with one byte of a stored query changed:\n")
    mirror = demo.folder / "mirror.git"
    script = (
        "tree=$(git rev-parse gitops/ledger/brain^{tree}) && "
        "blob=$(git ls-tree -r --name-only $tree __cluster/resources/query | head -n 1) && "
        "export GIT_INDEX_FILE=$PWD/tampered && git read-tree $tree && "
        "new=$(git cat-file blob $tree:$blob | sed '1s/./X/' | git hash-object -w --stdin) && "
        "git update-index --cacheinfo 100644,$new,$blob && "
        'git cat-file commit gitops/ledger/brain | sed "1s/.*/tree $(git write-tree)/" | '
        "git hash-object -t commit -w --stdin"
    )
    env = {**demo.env, "HOME": str(demo.folder / "home" / "bob")}
    done = subprocess.run(["sh", "-c", script], cwd=mirror, env=env, check=True, capture_output=True, text=True)
    demo.quietly("git", "update-ref", "refs/heads/gitops/ledger/brain", done.stdout.strip(), cwd=mirror)
    demo.run("auditor", "gitops", "audit", "--repo", "../mirror.git", expect=1)


def served(demo: Demo) -> None:
    """What was applied is served: alice runs a stored query that the policy permits, and is refused a change."""
    token, tokens = demo.folder / "home" / "alice" / "token", demo.folder / "home" / "bot" / "tokens.json"
    token.write_text(os.urandom(16).hex())
    tokens.write_text(json.dumps({"act-reader": token.read_text()}))
    for file in (token, tokens):
        file.chmod(0o600)
    command = ["gitops", "serve", "--repo", str(demo.server), "--cluster", "brain", "--bind", "127.0.0.1:0", "--quiet"]
    print(f"bot$ {shlex.join(command)}", flush=True)
    env = {**demo.env, "HOME": str(tokens.parent), "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(tokens)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as server:
        try:
            line = server.stdout.readline().strip() if server.stdout else ""
            print(f"    {line}")
            if not line.startswith("OMNIGRAPH_LISTEN_ADDR="):
                sys.exit("the server did not start")
            ask = [
                "gitops",
                "query",
                "--server",
                f"http://{line.partition('=')[2]}",
                "--token-file",
                str(token),
                "knowledge",
            ]
            print("\nalice has a token of act-reader, who may read and run stored queries:\n")
            demo.run("alice", *ask, "cited_by", "--param", "slug=why-columns")
            print("\nact-reader may change nothing, also not by a stored query:\n")
            demo.run("alice", *ask, "promote", "--param", "person=ada", "--param", "level=9", "--mutate", expect=1)
        finally:
            server.terminate()


def main() -> None:
    started = time.monotonic()
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "demo").resolve()
    if folder.exists() and not (folder / MARK).exists():
        sys.exit(f"{folder} exists and is not a sandbox of this demo; name another folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    demo = Demo(folder)

    step("A bare repository with hooks, and a cluster pushed for the first time")
    prepare(demo)
    demo.run("bot", "gitops", "hook", "install", at="server.git")
    first_push(demo)
    step("A schema change: the plan is posted, the merge applies it, nothing is lost")
    soft_drop(demo)
    step("Deleting a graph: only with a signed approval of somebody else")
    graph_delete(demo)
    step("Who may approve is approved, too: by signature before the merge, whatever the merge method")
    new_approver(demo)
    step("A merge lands whole or not at all")
    failed_merge(demo)
    step("The ledger is the audit trail")
    ledger(demo)
    step("A tampered ledger does not pass")
    tamper(demo)
    step("What is applied is served, within its policy")
    served(demo)
    print(f"\nDone in {time.monotonic() - started:.0f} s. The sandbox stays in {folder}.")
    act = folder / "as"
    act.write_text(ACT.replace("@PATH@", shlex.quote(str(Path(sys.executable).parent))))
    act.chmod(0o755)
    print(
        f"\nThere you are alice or bob with ./as. To try next:\n\n{NEXT.replace('@FOLDER@', shlex.quote(str(folder)))}"
    )


if __name__ == "__main__":
    main()
