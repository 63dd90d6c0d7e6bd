"""Checks keys and rules: enough people can approve, now and in a month, and no one has two roles."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gitops.cluster.approvals.origins import may_approve, may_approve_waiting, person_of_key
from gitops.cluster.approvals.verify import HOSTED, has_account
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, BotConfig, ClusterRule
from gitops.cluster.config.oidc import is_here
from gitops.cluster.config.rule_text import DATA_ROWS, line_of, sets
from gitops.cluster.ledger.chain import VerifiedEntry, ledger_ref, verify_chain
from gitops.cluster.model.address import trust_address
from gitops.cluster.model.change import GateName
from gitops.cluster.model.identity import TokenIssuer
from gitops.cluster.model.ledger import Authors
from gitops.cluster.model.trust import TrustRoot
from gitops.core.clock import IdSource
from gitops.core.errors import GitopsError, IntegrityError, RemoteError
from gitops.doctor.findings import DoctorFinding, attempt, error, good, unknown, warning
from gitops.forge.web import WebSender
from gitops.git.port import ZERO, CommitSignature, GitReader, GitRemote, GitStore, NewCommit, Person, RefUpdate
from gitops.git.remote import SelfRemote
from gitops.render.words import count
from gitops.repository.wiring.local import LocalRepository

_SOON = timedelta(days=30)


def trust_findings(
    config: BotConfig,
    trust: TrustRoot,
    now: datetime,
    own_key: str | None = None,
    *,
    serves: bool = False,
    source: bytes = b"",
) -> Iterator[DoctorFinding]:
    """Run these checks on the target branch's rules, whose `gitops.yaml` is `source`.

    `own_key` is this machine's public key; None if it is unknown. `serves` means that this machine is the server, so
    its key must sign entries.
    """
    path = config.approvals.allowed_signers
    if config.repository is None:
        detail = "approvals are bound to the root commit, which every copy of the repository has"
        yield warning("trust.repository-id", detail, f"{CONFIG_FILE}: repository: NAME")
    else:
        yield good("trust.repository-id", config.repository)
    for at, when in ((now, "now"), (now + _SOON, "in 30 days")):
        if trust.ledger_signers.isdisjoint(_people_with_key(trust, at)):
            detail = f"no ledger signer has a valid key {when}: nothing can be applied"
            yield error("trust.ledger-key", detail, f"renew the key of a ledger signer in {path}")
            break
    else:
        yield good("trust.ledger-key", f"entries are signed by {', '.join(sorted(trust.ledger_signers))}")
    soon = [
        f"{signer.principals[0]} ({signer.valid_before:%Y-%m-%d})"
        for signer in trust.signers
        if signer.valid_before is not None and now < signer.valid_before <= now + _SOON
    ]
    if soon:
        detail = f"keys expire within 30 days: {', '.join(soon)}"
        yield warning("trust.expiring", detail, f"add new lines to {path} in time")
    else:
        yield good("trust.expiring", "no key expires within 30 days")
    yield from _roles(trust, _people_with_key(trust, now), path)
    yield from _lines(trust, path)
    yield _data_growth(trust, source)
    if (limit := trust.limits.get(GateName.DELETES.limit)) is not None:
        yield good("trust.deletes", f"a merge deletes at most {limit} resources without approvals")
    if trust.on_drift == "block":
        yield good("trust.drift", "a merge waits while drift is open (apply.on_drift: block)")
    yield _own_key(trust, now, own_key, f"add its line to {path}", serves=serves)


def people_findings(
    config: BotConfig, trust: TrustRoot, now: datetime, forge: str, in_force: str = ""
) -> Iterator[DoctorFinding]:
    """Check that enough people can approve and, on a hosted forge, that the rules list an account of each.

    The rules are those of the target branch; or those in force in a cluster, `in_force`, where the branch has others.
    """
    rules = [rule for rule in config.clusters if in_force in ("", rule.name)]
    for each in (*_quorums(config, rules, trust, now, forge), *_accounts(trust, now, forge)):
        if not in_force:
            yield each
            continue
        detail = f"by the rules in force, which differ from those of the branch: {each.detail}"
        fix = each.fix and f"{each.fix}; it counts once trust.{in_force} is approved and applied"
        yield replace(each, detail=detail, fix=fix, place=in_force)


def _quorums(
    config: BotConfig, rules: Sequence[ClusterRule], trust: TrustRoot, now: datetime, forge: str
) -> Iterator[DoctorFinding]:
    """Check that enough people can approve, by the largest number of each environment.

    Also checks that a review counts for at least one kind of change.
    """
    path = config.approvals.allowed_signers
    quorums = [trust.quorum(name) for name in sorted({rule.environment for rule in rules})]
    if not trust.numbers:
        yield _quorum(trust, now, forge, f"{path} and approvals.required", trust.required)
    for quorum in quorums if trust.numbers else ():
        named = {gate for _, gate, _ in trust.numbers}
        # The limit on removals from hosts is always set, also where there are no hosts.
        shown = (each for each in quorum.numbers.items() if each[0] is not GateName.HOST_DELETES or each[0] in named)
        gates = ", ".join(f"{gate} {number}" for gate, number in shown)
        where = f"{path}, approvals.gates and approvals.environments"
        yield _quorum(trust, now, forge, where, max(quorum.numbers.values()), f" in {quorum.environment} ({gates})")
    count = sorted({tier for quorum in quorums for tier in trust.reviews_open(quorum.environment)})
    yield good("trust.reviews", f"a review counts for: {', '.join(count)}" if count else "no gate accepts a review")


def _quorum(trust: TrustRoot, now: datetime, forge: str, where: str, needed: int, place: str = "") -> DoctorFinding:
    able, later = (len(may_approve(trust, Authors(), at, forge)) for at in (now, now + _SOON))
    what = f"{'1 person' if able == 1 else f'{able} people'} can approve, {needed} are required{place}"
    if able < needed:
        return error("trust.quorum", f"{what}: no gated change can be approved", f"add keys: {where}")
    if later < needed:
        return error("trust.quorum", f"{what}; in 30 days {later} can", f"add or renew keys: {where}")
    if able == needed:
        alone = "an approver's own changes cannot be approved, and no approver may be absent or lose a key"
        return warning("trust.quorum", f"{what}: {alone}", f"add an approver: {where}")
    return good("trust.quorum", what)


def _people_with_key(trust: TrustRoot, at: datetime) -> list[str]:
    """Return the principals of keys that are valid at a given time, in file order."""
    return [name for signer in trust.signers if (name := trust.principal(signer.key, at=at)) is not None]


def _roles(trust: TrustRoot, able: Iterable[str], path: str) -> Iterator[DoctorFinding]:
    """Check that each role has people with a key, and that no person has two roles."""
    if both := sorted(trust.approvers & trust.ledger_signers):
        detail = f"{', '.join(both)} signs the ledger and is listed as an approver, which has no effect"
        yield warning("trust.roles", detail, f"{CONFIG_FILE}: remove it from approvals.approvers")
    listed: tuple[tuple[str, Iterable[str]], ...] = (
        ("approvals.approvers", trust.approvers),
        ("approvals.break_glass", trust.break_glass),
        ("approvals.accounts", dict(trust.accounts).values()),
        ("ledger.signers", trust.ledger_signers),
    )
    for key, names in listed:
        if without_key := sorted(set(names).difference(able)):
            fix = f"add a line to {path}, or remove the name from {key}"
            yield warning("trust.roles", f"{key} names {', '.join(without_key)}, who has no valid key", fix, key)
    alone = ", ".join(sorted(trust.break_glass))
    yield good("trust.break-glass", f"may approve alone: {alone}" if alone else "no person may approve alone")


def _lines(trust: TrustRoot, path: str) -> Iterator[DoctorFinding]:
    """Check that each line of the allowed signers has a single purpose."""
    for signer in trust.signers:
        names = set(signer.principals)
        if names & trust.ledger_signers and names - trust.ledger_signers:
            detail = f"{' and '.join(signer.principals)} share a key: it signs the ledger and a person's approvals"
            yield error("trust.shared-key", detail, f"{path}: a separate key for the ledger", path)
    if unrestricted := sorted({signer.principals[0] for signer in trust.signers if not signer.namespaces}):
        detail = f"keys of {', '.join(unrestricted)} are valid for signatures of any kind"
        yield warning("trust.namespaces", detail, f'{path}: namespaces="git" on each line', path)
    else:
        yield good("trust.namespaces", "every key is valid only for git", path)


def _data_growth(trust: TrustRoot, source: bytes) -> DoctorFinding:
    """Check whether an approval could cover many more rows than its approver saw. An explicit number is accepted."""
    growth, where = trust.data_growth, f"{CONFIG_FILE}:{line_of(source, DATA_ROWS)}"
    if sets(source, DATA_ROWS):
        detail = f"an approval covers at most {growth.allowed(1000) - 1000:,} rows more than 1,000"
        return good("trust.data-growth", f"{detail}; laxer than rows: 0 by {where}" if growth.rows else detail)
    detail = f"an approval for a graph of 5 rows covers up to {growth.allowed(5):,} rows, because {where} sets no rows"
    rule = f"data_growth: {{percent: {growth.percent}, rows: 0}}"
    fix = f"{CONFIG_FILE}, approvals: {rule}; to propose that as a change request, in a clone: gitops init --upgrade"
    return warning("trust.data-growth", detail, fix)


def _own_key(trust: TrustRoot, now: datetime, own_key: str | None, fix: str, *, serves: bool) -> DoctorFinding:
    check = "trust.own-key"
    if own_key is None:
        return unknown(check, "the key of this machine is unknown")
    name = trust.principal(own_key, at=now)
    if name is None and own_key in trust.revoked:
        return error(check, "the key of this machine is revoked", "git config user.signingKey to another key")
    if serves and name not in trust.ledger_signers:
        detail = "the key of this server does not belong to a ledger signer: nothing can be applied"
        return error(check, detail, f"{fix} and its name to ledger.signers")
    if name is None:
        return warning(check, "the key of this machine belongs to no person with a valid key: it cannot approve", fix)
    return good(check, f"the key of this machine belongs to {name}")


# Checks that authors can be identified: who pushes to a server, and whose forge accounts the rules list
# (docs/trust.md).


def server_finding(
    trust: TrustRoot, now: datetime, newest: CommitSignature, *, certificates: bool, recorded: bool, install: str
) -> DoctorFinding:
    """Check that a self-hosted server provides an origin for each commit: the pusher, or at least a signature.

    `newest` is the signature of the target branch's newest commit. `certificates` is whether the server accepts push
    certificates, and `recorded` whether it has recorded a push by a known account or key. `install` is the command that
    installs its hooks.
    """
    signed = newest.good and newest.namespace == "git" and person_of_key(trust, newest.key, now) is not None
    listed = any(account.startswith("local:") for account, _ in trust.accounts)
    sources = {
        "push certificates are accepted": certificates,
        "recorded pushes": recorded,
        "accounts local:NAME are listed": listed,
        "the newest commit is signed": signed,
    }
    found = [source for source, present in sources.items() if present]
    if found:
        return good("hooks.origins", f"authors can be known: {', '.join(found)}")
    detail = (
        "the server does not know who pushes, and commits are not signed: authors are unknown, so no approval counts"
    )
    fix = (
        f"{install}, and git push --signed; or ExposeAuthInfo yes in sshd_config; "
        f"or {CONFIG_FILE}: approvals.accounts: {{'local:NAME': PERSON}}"
    )
    return error("hooks.origins", detail, fix)


def _accounts(trust: TrustRoot, now: datetime, forge: str) -> Iterator[DoctorFinding]:
    """Return whether the rules list an account of each approver on the forge in use, if it is a hosted one."""
    if forge not in HOSTED:
        return
    missing = [name for name in may_approve(trust, Authors(), now) if not has_account(trust.known_as([name]), forge)]
    if missing:
        detail = f"no account on {forge} is listed for {', '.join(missing)}: their approvals do not count"
        fix = f"{CONFIG_FILE}: approvals.accounts: {{'{forge}:NUMBER': {missing[0]}}}"
        yield error("trust.accounts", detail, fix)
    else:
        yield good("trust.accounts", f"every approver has an account on {forge}")


def served_preview_findings(config: BotConfig) -> Iterator[DoctorFinding]:
    """Check whether servers can serve previewed change requests, if `serve.previews` is on."""
    serve, preview = config.serve, config.preview
    if not serve.previews:
        return
    if not preview.enabled or preview.scratch is None:
        key = "preview.enabled: true" if not preview.enabled else "preview.scratch: previews"
        detail = "serve.previews is on, but no change request is previewed, so servers have none to serve"
        yield warning("trust.previews", detail, f"{CONFIG_FILE}: {key}")
    elif not serve.previewers:
        detail = "serve.previews is on, but serve.previewers is empty, so no token can use a served change request"
        yield warning("trust.previews", detail, f'{CONFIG_FILE}: serve.previewers: ["*"]')
    else:
        yield good("trust.previews", f"servers serve change requests to {', '.join(serve.previewers)}")


def issuer_findings(issuers: Iterable[TokenIssuer], open_sender: Callable[[str], WebSender]) -> Iterator[DoctorFinding]:
    """Check whether each identity provider's keys can be read from here, and whether servers elsewhere can read them."""
    try:
        from gitops.identity.verify import read_keys
    except ImportError as missing:
        yield unknown("oidc.keys", f"checking an identity provider needs the extra serve: {missing}")
        return
    for issuer in issuers:
        name = issuer.issuer
        if is_here(name) or is_here(issuer.jwks or ""):
            detail = "it is at an address of this machine, so only servers on this machine can read its keys"
            yield warning("oidc.issuer", detail, f"{CONFIG_FILE}: oidc.issuers: {{issuer: https://HOST}}", name)
        try:
            keys = read_keys(open_sender, issuer)
        except GitopsError as problem:
            detail = f"its keys cannot be read from here, and servers that cannot read them refuse its tokens: {problem.detail}"
            yield warning("oidc.keys", detail, f"{CONFIG_FILE}: correct issuer or jwks below oidc.issuers", name)
        else:
            yield good("oidc.keys", f"{count(len(keys), 'key')} can be read", name)


# Checks of a ledger branch: it exists, its chain is valid, it is pinned, it can be written. The write is undone.


_LOCKS = (
    ("refs/gitops/locks/", "the host accepts custom refs"),
    ("refs/heads/gitops/locks/", "the host accepts no custom refs; locks are branches"),
)


REFS_WRITABLE = good("ledger.writable", "refs of the bot can be pushed from here")


def ledger_findings(
    local: LocalRepository, rule: ClusterRule, trust: str, now: datetime, kind: str
) -> Generator[DoctorFinding, None, VerifiedEntry | None]:
    """Run the checks that only read. `trust` is the digest of the target branch's keys and rules; `kind` is the kind of forge.

    Returns the newest entry with the rules in force, None without a verified ledger.
    """
    name, ref = rule.name, ledger_ref(rule.name)
    branch = ref.removeprefix("refs/heads/")
    known, gaps = attempt("ledger.present", lambda: (local.heads(rule).known(), local.head_of(ref)), name)
    yield from gaps
    if known is None:
        return None
    heads, head = known
    # What this clone has seen of the ledger before. On the server itself the branch is the ledger, so it proves
    # nothing.
    serves = isinstance(local.remote, SelfRemote)
    seen = (heads.seen, heads.note, None if serves else heads.branch)
    pins = tuple(dict.fromkeys(pin for pin in seen if pin is not None))
    if head is None and pins:
        detail = f"the branch {branch} was seen here before and is missing now"
        yield error("ledger.present", detail, f"git push REMOTE {pins[0]}:refs/heads/{branch}", name)
        return None
    if head is None:
        sweep = f"gitops bot sweep --repo {local.git.git_dir if serves else 'PATH'}"
        on_forge = "run the job that applies, by hand or with a push to the branch"
        fix = on_forge if kind in HOSTED else sweep if serves else f"on the server: {sweep}"
        yield warning("ledger.present", f"branch {branch} does not exist yet", fix, name)
        return None
    yield good("ledger.present", f"{branch} is at {head[:12]}", name)
    newest = yield from _chain(local.git, name, head, pins, trust, now)
    if pins:
        yield good("ledger.pin", f"this clone has pinned {pins[0][:12]}", name)
    else:
        detail = "this clone has no pinned entry: it would accept an older ledger"
        yield warning("ledger.pin", detail, f"gitops audit --cluster {name}", name)
    lock = None
    with contextlib.suppress(GitopsError):
        lock = local.ledger(rule).observe_lock()
    if lock is None:
        yield unknown("ledger.lock", "the lock could not be read", place=name)
    elif not lock.held:
        yield good("ledger.lock", "the lock is not held", name)
    elif lock.info is None:
        detail = f"the lock is held and cannot be read: {lock.problem}"
        fix = f"if no run is active: gitops force-unlock {lock.unlock_id} --cluster {name}"
        yield error("ledger.lock", detail, fix, name)
    else:
        detail = f"held since {lock.info.created_at} by {lock.info.operation}"
        fix = f"if that run is over: gitops force-unlock {lock.unlock_id} --cluster {name}"
        yield warning("ledger.lock", detail, fix, name)
    return newest


def _chain(
    reader: GitReader, name: str, head: str, pins: Sequence[str], trust: str, now: datetime
) -> Generator[DoctorFinding, None, VerifiedEntry | None]:
    try:
        found = verify_chain(reader, head, None)
        for pin in pins:
            verify_chain(reader, head, pin)
    except IntegrityError as problem:
        detail = f"{problem.code}: {problem.detail}"
        yield error("ledger.chain", detail, f"gitops audit --cluster {name}, and find out who wrote that branch", name)
        return None
    except GitopsError as problem:
        yield unknown("ledger.chain", f"{problem.code}: {problem.detail}", "git fetch origin", name)
        return None
    yield good("ledger.chain", f"{found.entry.number} entries form a chain, and each is signed", name)
    if found.after.digest != trust:
        detail = "keys or rules of the branch differ from those in force, and wait for an approval"
        able = may_approve_waiting(found.after, found.entry, now, trust_address(name))
        if able is None or able:
            who = "an approver who is not an author" if able is None else " or ".join(able)
            fix = f"ask {who} to run: gitops approve trust.{name} --cluster {name}"
            yield warning("trust.pending", detail, fix, name)
        else:
            fix = 'see "No one can approve" in docs/troubleshooting.md'
            yield error("trust.pending", f"{detail}, which no one can give by the rules in force", fix, name)
    return found


def probe_locks(store: GitStore, remote: GitRemote, ids: IdSource, person: Person) -> Iterator[DoctorFinding]:
    """Create and delete a lock for a cluster that does not exist, first as a custom ref, then as a branch.

    The result shows whether this machine can push the bot's refs, and which kind the host accepts. If a ref could not
    be deleted, a finding reports it.
    """
    name = f"doctor_{ids.ulid()}"
    tree = store.write_files(None, {"doctor.txt": f"{name}\n".encode()})
    commit = store.write_commit(NewCommit(tree, (), person, f"{name}\n"), signing_key=None)
    refused = ""
    for folder, accepted in _LOCKS:
        ref = folder + name
        try:
            remote.push([RefUpdate(ref, ZERO, commit)])
        except RemoteError as problem:
            # A final refusal is an error in the setup. If the remote does not respond, that proves nothing.
            detail = f"{problem.code}: {problem.detail}"
            yield (unknown if problem.retryable else error)("ledger.writable", detail, "check the remote and the login")
            return
        except GitopsError as problem:
            refused = f"{problem.code}: {problem.detail}"
            continue
        yield REFS_WRITABLE
        yield good("ledger.lock-refs", accepted)
        try:
            remote.push([RefUpdate(ref, commit, ZERO)])
        except GitopsError as problem:
            detail = f"{ref} was created and could not be deleted ({problem.code}): locks could not be released"
            yield error("ledger.writable", detail, f"allow the bot to delete it; git push REMOTE --delete {ref}")
        return
    fix = "give the account write access, and let it push gitops/** (docs/forges.md)"
    yield error("ledger.writable", f"no ref of the bot can be pushed from here: {refused}", fix)
