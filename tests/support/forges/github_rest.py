"""The REST half of the interface: one function for each operation of the description.

A function takes the world and the `Call`, and gives status and body. Which operations there are, and what each may be asked
and may answer, is the description's business; which area of a token an operation needs is said beside its function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphql import GraphQLError, graphql_sync

from gitops.core.errors import GitopsError
from gitops.git.port import ZERO, RefUpdate
from tests.support.forges import landing
from tests.support.forges.github_forms import FULL_NAME
from tests.support.forges.records import (
    RANKS,
    Account,
    CheckRun,
    Deployment,
    Issue,
    Pull,
    QueueEntry,
    Reaction,
    Status,
    Token,
)
from tests.support.forges.world import RefusedError, World
from tests.support.github_contract import schema

_REPO = "/repos/{owner}/{repo}"


@dataclass(frozen=True)
class Call:
    """One request that has passed the contract: `arguments` of its path, unquoted."""

    token: Token
    who: Account
    arguments: dict[str, str]
    query: dict[str, str]
    body: dict[str, Any]

    def number(self, name: str) -> int:
        return int(self.arguments[name])


@dataclass(frozen=True)
class Page:
    """A list of which a part is shown; `name` is the field of `whole` that holds it, if it is not the whole answer."""

    items: Sequence[Any]
    name: str = ""
    whole: Mapping[str, Any] = field(default_factory=dict)


Answer = tuple[int, Any]
Handler = Callable[[World, Call], Answer]


@dataclass(frozen=True)
class Route:
    """What carries an operation out, and what it needs of a token: area and level."""

    handler: Handler
    area: str
    level: str


ROUTES: dict[str, Route] = {}


def on(operation: str, area: str = "metadata", level: str = "read") -> Callable[[Handler], Handler]:
    method, path = operation.split(" ")
    name = f"{method} {path if path in ('/user', '/rate_limit') else _REPO + path}"

    def register(handler: Handler) -> Handler:
        ROUTES[name] = Route(handler, area, level)
        return handler

    return register


# -- who and what ------------------------------------------------------------------------------------------------------


@on("GET /user")
def _user(world: World, call: Call) -> Answer:
    if call.token.kind != "user":
        raise RefusedError(403, "Resource not accessible by integration")
    form = world.forms.user(call.who.login)
    numbers = dict.fromkeys(("public_repos", "public_gists", "followers", "following"), 0)
    texts = dict.fromkeys(("name", "company", "blog", "location", "email", "hireable", "bio"))
    return 200, form | numbers | texts | {"created_at": "2020-01-01T00:00:00Z", "updated_at": "2020-01-01T00:00:00Z"}


@on("GET /collaborators/{username}/permission")
def _permission(world: World, call: Call) -> Answer:
    account = world.accounts.get(call.arguments["username"])
    if account is None:
        raise RefusedError(404, "Not Found")
    # Triage and maintain are told by `role_name` alone.
    shown = {"triage": "read", "maintain": "write"}.get(account.permission, account.permission)
    rank = RANKS.index(account.permission)
    may = {name: rank >= RANKS.index(least) for name, least in _MAY.items()}
    user = world.forms.user(account.login) | {"permissions": may, "role_name": account.permission}
    return 200, {"permission": shown, "role_name": account.permission, "user": user}


_MAY = {"pull": "read", "triage": "triage", "push": "write", "maintain": "maintain", "admin": "admin"}


@on("GET /rules/branches/{branch}")
def _rules(world: World, call: Call) -> Answer:
    if not world.habits.shows_rules:
        raise RefusedError(403, "Upgrade to GitHub Pro or make this repository public to enable this feature.")
    return 200, Page(
        [
            {
                "type": kind,
                "ruleset_source_type": "Repository",
                "ruleset_source": "octo/brain",
                "ruleset_id": ruleset.id,
            }
            | ({} if parameters is None else {"parameters": parameters})
            for ruleset, kind, parameters in world.rules(call.arguments["branch"])
        ]
    )


@on("GET /branches/{branch}/protection", "administration")
def _protection(world: World, call: Call) -> Answer:
    raise RefusedError(404, "Branch not protected")


@on("GET /activity", "contents")
def _activity(world: World, call: Call) -> Answer:
    """Newest first. See https://docs.github.com/en/rest/repos/repos#list-repository-activities"""
    query = call.query
    found = [
        a
        for a in world.activities
        if a.repository == f"{call.arguments['owner']}/{call.arguments['repo']}"
        and query.get("ref") in (None, a.ref, a.ref.removeprefix("refs/heads/"))
        and query.get("actor") in (None, a.actor)
        and query.get("activity_type") in (None, a.kind)
    ]
    if query.get("direction", "desc") == "desc":
        found.reverse()
    return 200, Page([world.forms.activity(a) for a in found])


# -- pull requests -----------------------------------------------------------------------------------------------------


@on("GET /pulls", "pull_requests")
def _pulls(world: World, call: Call) -> Answer:
    query = call.query
    state, base, head = query.get("state", "open"), query.get("base"), query.get("head")
    found = [
        pull
        for pull in world.pulls()
        if (state in ("all", pull.state))
        and base in (None, pull.target)
        and head in (None, f"{pull.repository.partition('/')[0]}:{pull.source}")
    ]
    # Newest first, unless something else is asked for.
    if query.get("direction", "desc" if query.get("sort", "created") == "created" else "asc") == "desc":
        found.reverse()
    return 200, Page([world.forms.pull(p, full=False) for p in found])


@on("POST /pulls", "pull_requests", "write")
def _open(world: World, call: Call) -> Answer:
    body = call.body
    source = body["head"].partition(":")[2] or body["head"]
    pull = world.open_pull(call.who.login, source, target=body["base"], title=body["title"])
    pull.body = body.get("body") or ""
    return 201, world.forms.pull(pull)


@on("GET /pulls/{pull_number}", "pull_requests")
def _pull(world: World, call: Call) -> Answer:
    return 200, world.forms.pull(world.pull(call.number("pull_number")))


@on("PATCH /pulls/{pull_number}", "pull_requests", "write")
def _change_pull(world: World, call: Call) -> Answer:
    pull = world.pull(call.number("pull_number"))
    pull.title, pull.body = call.body.get("title", pull.title), call.body.get("body", pull.body)
    if call.body.get("state") == "closed" and pull.state == "open":
        world.close(pull.number, call.who.login)
    return 200, world.forms.pull(pull)


@on("GET /pulls/{pull_number}/files", "pull_requests")
def _files(world: World, call: Call) -> Answer:
    pull = world.pull(call.number("pull_number"))
    url = "https://github.com/octo/brain/blob/x"
    form = {"sha": pull.head, "status": "modified", "additions": 1, "deletions": 1, "changes": 2}
    form |= {"blob_url": url, "raw_url": url, "contents_url": url}
    return 200, Page([form | {"filename": path} for path in world.files(pull)])


@on("GET /pulls/{pull_number}/reviews", "pull_requests")
def _reviews(world: World, call: Call) -> Answer:
    pull = world.pull(call.number("pull_number"))
    return 200, Page([world.forms.review(pull.number, r) for r in pull.reviews])


@on("POST /pulls/{pull_number}/reviews", "pull_requests", "write")
def _review(world: World, call: Call) -> Answer:
    states = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED"}
    number = call.number("pull_number")
    review = world.review(call.who.login, number, states[call.body["event"]], commit=call.body.get("commit_id"))
    return 200, world.forms.review(number, review)


@on("PUT /pulls/{pull_number}/merge", "contents", "write")
def _merge(world: World, call: Call) -> Answer:
    body = call.body
    order = landing.Order(
        call.who.login, body.get("merge_method", "merge"), body.get("sha"), body.get("commit_title", "")
    )
    sha = landing.merge(world, call.number("pull_number"), order)
    return 200, {"sha": sha, "merged": True, "message": "Pull Request successfully merged"}


@on("GET /commits/{commit_sha}/pulls", "pull_requests")
def _of_commit(world: World, call: Call) -> Answer:
    """The merged request that brought a commit of the default branch in; else the open ones that hold it.

    The index lags: for a new merge it is empty at first.
    """
    sha, store = call.arguments["commit_sha"], world.store
    if world.unindexed.get(sha, 0) > 0:
        world.unindexed[sha] -= 1
        return 200, Page([])
    found = [p for p in world.pulls() if sha in (p.merged_as, p.head) or _brought(world, p, sha)]
    if store.resolve(sha) is None:
        raise RefusedError(422, f"No commit found for SHA: {sha}")
    return 200, Page([world.forms.pull(p, full=False) for p in found])


def _brought(world: World, pull: Pull, sha: str) -> bool:
    store = world.store
    base = store.merge_base(pull.base, pull.head)
    return store.is_ancestor(sha, pull.head) and (base is None or not store.is_ancestor(sha, base))


# -- issues, comments, labels ------------------------------------------------------------------------------------------


@on("GET /issues", "issues")
def _issues(world: World, call: Call) -> Answer:
    state, labels = call.query.get("state", "open"), [x for x in call.query.get("labels", "").split(",") if x]
    creator = call.query.get("creator")
    found = [
        issue
        for issue in world.issues.values()
        if state in ("all", issue.state) and creator in (None, issue.author) and set(labels) <= set(issue.labels)
    ]
    if call.query.get("direction", "desc") == "desc":
        found.reverse()
    return 200, Page([world.forms.issue(i) for i in found])


@on("POST /issues", "issues", "write")
def _new_issue(world: World, call: Call) -> Answer:
    body = call.body
    issue = world.open_issue(call.who.login, str(body["title"]), body.get("body") or "", body.get("labels", ()))
    return 201, world.forms.issue(issue)


@on("GET /issues/{issue_number}", "issues")
def _issue(world: World, call: Call) -> Answer:
    return 200, world.forms.issue(world.issue(call.number("issue_number")))


@on("PATCH /issues/{issue_number}", "issues", "write")
def _change_issue(world: World, call: Call) -> Answer:
    issue = world.issue(call.number("issue_number"))
    for name in ("title", "body", "labels"):
        if name in call.body:
            setattr(issue, name, call.body[name])
    if call.body.get("state", issue.state) != issue.state:
        issue.state = call.body["state"]
        issue.closed_at = world.stamp() if issue.state == "closed" else None
    return 200, world.forms.issue(issue)


@on("GET /issues/{issue_number}/comments", "pull_requests")
def _comments(world: World, call: Call) -> Answer:
    issue = world.issue(call.number("issue_number"))
    return 200, Page([world.forms.comment(issue.number, c) for c in issue.comments])


@on("POST /issues/{issue_number}/comments", "pull_requests", "write")
def _comment(world: World, call: Call) -> Answer:
    number = call.number("issue_number")
    return 201, world.forms.comment(number, world.comment(call.who.login, number, call.body["body"]))


@on("GET /issues/comments/{comment_id}", "pull_requests")
def _one_comment(world: World, call: Call) -> Answer:
    issue, comment = world.find_comment(call.number("comment_id"))
    return 200, world.forms.comment(issue.number, comment)


@on("PATCH /issues/comments/{comment_id}", "pull_requests", "write")
def _edit(world: World, call: Call) -> Answer:
    issue, _ = world.find_comment(call.number("comment_id"))
    return 200, world.forms.comment(
        issue.number, world.edit(call.who.login, call.number("comment_id"), call.body["body"])
    )


@on("DELETE /issues/comments/{comment_id}", "pull_requests", "write")
def _erase(world: World, call: Call) -> Answer:
    world.erase(call.who.login, call.number("comment_id"))
    return 204, None


@on("GET /issues/comments/{comment_id}/reactions", "pull_requests")
def _reactions(world: World, call: Call) -> Answer:
    _, comment = world.find_comment(call.number("comment_id"))
    wanted = call.query.get("content")
    return 200, Page([world.forms.reaction(r) for r in comment.reactions if wanted in (None, r.content)])


@on("POST /issues/comments/{comment_id}/reactions", "pull_requests", "write")
def _react(world: World, call: Call) -> Answer:
    """One account gives one of a kind: a second time it is the first one that answers, with another status."""
    _, comment = world.find_comment(call.number("comment_id"))
    for reaction in comment.reactions:
        if (reaction.account, reaction.content) == (call.who.login, call.body["content"]):
            return 200, world.forms.reaction(reaction)
    reaction = Reaction(world.next_id(), call.who.login, call.body["content"])
    comment.reactions.append(reaction)
    return 201, world.forms.reaction(reaction)


@on("DELETE /issues/comments/{comment_id}/reactions/{reaction_id}", "pull_requests", "write")
def _unreact(world: World, call: Call) -> Answer:
    _, comment = world.find_comment(call.number("comment_id"))
    comment.reactions = [r for r in comment.reactions if r.id != call.number("reaction_id")]
    return 204, None


@on("GET /issues/{issue_number}/labels", "pull_requests")
def _labels(world: World, call: Call) -> Answer:
    return 200, Page(_labels_of(world, world.issue(call.number("issue_number"))))


@on("POST /issues/{issue_number}/labels", "pull_requests", "write")
def _label(world: World, call: Call) -> Answer:
    issue = world.issue(call.number("issue_number"))
    # A label that the repository does not have is created, which belongs to issues alone.
    creates = world.habits.creates_labels and call.token.may("issues", "write")
    if not set(call.body["labels"]) <= world.labels.keys() and not creates:
        raise RefusedError(403, "Resource not accessible by integration")
    world.know_labels(call.body["labels"])
    issue.labels += [name for name in call.body["labels"] if name not in issue.labels]
    return 200, _labels_of(world, issue)


@on("DELETE /issues/{issue_number}/labels/{name}", "pull_requests", "write")
def _unlabel(world: World, call: Call) -> Answer:
    issue = world.issue(call.number("issue_number"))
    if call.arguments["name"] not in issue.labels:
        raise RefusedError(404, "Label does not exist")
    issue.labels.remove(call.arguments["name"])
    return 200, _labels_of(world, issue)


@on("PATCH /labels/{name}", "issues", "write")
def _change_label(world: World, call: Call) -> Answer:
    name = call.arguments["name"]
    if name not in world.labels:
        raise RefusedError(404, "Not Found")
    world.labels[name] = call.body["color"]
    return 200, world.forms.label(name) | {"description": call.body["description"]}


@on("GET /actions/secrets", "secrets")
def _secrets(world: World, call: Call) -> Answer:
    """Those of the repository. What no other branch gets is in the environment, which names none."""
    at = {"created_at": world.stamp(), "updated_at": world.stamp()}
    rows = [{"name": name, **at} for name, free in world.secrets.items() if free]
    return 200, Page(rows, "secrets", {"total_count": len(rows)})


@on("GET /environments/{environment_name}", "actions")
def _environment(world: World, call: Call) -> Answer:
    if world.environment_branches is None:
        raise RefusedError(404, "Not Found")
    policy = {"protected_branches": False, "custom_branch_policies": True} if world.environment_branches else None
    at = {"created_at": world.stamp(), "updated_at": world.stamp()}
    form = {
        "id": 1,
        "node_id": "E_1",
        "name": call.arguments["environment_name"],
        "url": "https://x.example/e",
        "html_url": "https://x.example/h",
    }
    return 200, {**form, **at, "deployment_branch_policy": policy}


@on("GET /environments/{environment_name}/deployment-branch-policies", "actions")
def _environment_branches(world: World, call: Call) -> Answer:
    rows = [
        {"id": n, "node_id": f"B_{n}", "name": name, "type": "branch"}
        for n, name in enumerate(world.environment_branches or (), 1)
    ]
    return 200, Page(rows, "branch_policies", {"total_count": len(rows)})


def _labels_of(world: World, issue: Issue) -> list[dict[str, Any]]:
    return [world.forms.label(name) for name in issue.labels]


# What is said about commits, and refs


__all__ = ["ROUTES"]

_MOST_ANNOTATIONS = 50


@on("POST /statuses/{sha}", "statuses", "write")
def _set_status(world: World, call: Call) -> Answer:
    sha, body = call.arguments["sha"], call.body
    known = world.store.resolve(sha) is not None
    if not known or world.refused_statuses[sha] < world.habits.late_commits:
        world.refused_statuses[sha] += known
        raise RefusedError(422, f"No commit found for SHA: {sha}")
    if len(body.get("description") or "") > 140:
        raise RefusedError(422, "Validation Failed: description is too long (maximum is 140 characters)")
    context, text = body.get("context", "default"), body.get("description") or ""
    status = Status(
        world.next_id(), sha, context, body["state"], text, call.who.login, world.stamp(), body.get("target_url")
    )
    world.statuses.append(status)
    return 201, world.forms.status(status)


@on("GET /commits/{ref}/statuses", "statuses")
def _statuses(world: World, call: Call) -> Answer:
    """Newest first."""
    sha = _commit(world, call.arguments["ref"])
    return 200, Page([world.forms.status(s) for s in reversed(world.statuses) if s.sha == sha])


@on("GET /commits/{ref}/status", "statuses")
def _combined(world: World, call: Call) -> Answer:
    sha = _commit(world, call.arguments["ref"])
    newest = {s.context: s for s in world.statuses if s.sha == sha}
    states = {s.state for s in newest.values()}
    worst = next((s for s in ("failure", "error", "pending") if s in states), "success" if states else "pending")
    forms = [_simple(world.forms.status(s)) for s in newest.values()]
    address = "https://api.github.com/repos/octo/brain/commits/x/status"
    whole = {"state": "failure" if worst == "error" else worst, "sha": sha, "total_count": len(forms), "url": address}
    whole |= {"repository": world.forms.repository(), "commit_url": address}
    return 200, Page(forms, "statuses", whole)


def _simple(form: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in form.items() if key != "creator"}


@on("POST /check-runs", "checks", "write")
def _new_check(world: World, call: Call) -> Answer:
    _only_apps(call)
    body, number = call.body, world.next_id()
    status = "completed" if body.get("conclusion") else body.get("status", "queued")
    app = "github-actions" if call.token.kind == "actions" else call.who.login.removesuffix("[bot]")
    run = CheckRun(number, body["head_sha"], body["name"], app, status, body.get("conclusion"), world.stamp())
    world.checks[number] = run
    _note(run, body.get("output"))
    return 201, world.forms.check_run(run)


@on("PATCH /check-runs/{check_run_id}", "checks", "write")
def _change_check(world: World, call: Call) -> Answer:
    _only_apps(call)
    run = _check(world, call)
    run.name, run.conclusion = call.body.get("name", run.name), call.body.get("conclusion", run.conclusion)
    run.status = "completed" if run.conclusion else call.body.get("status", run.status)
    _note(run, call.body.get("output"))
    return 200, world.forms.check_run(run)


def _note(run: CheckRun, output: dict[str, Any] | None) -> None:
    """Texts replace what was there, annotations are added to it."""
    if output is not None:
        notes = output.get("annotations", [])
        if len(notes) > _MOST_ANNOTATIONS:
            raise RefusedError(422, "No more than 50 items are allowed in annotations")
        run.annotations += notes
        run.output |= output


def _only_apps(call: Call) -> None:
    if call.token.kind == "user":
        raise RefusedError(403, "You must authenticate via a GitHub App.")


def _check(world: World, call: Call) -> CheckRun:
    number = call.number("check_run_id")
    if number not in world.checks:
        raise RefusedError(404, "Not Found")
    return world.checks[number]


@on("GET /check-runs/{check_run_id}", "checks")
def _one_check(world: World, call: Call) -> Answer:
    return 200, world.forms.check_run(_check(world, call))


@on("GET /commits/{ref}/check-runs", "checks")
def _checks(world: World, call: Call) -> Answer:
    """By default the newest of each name."""
    sha, name = _commit(world, call.arguments["ref"]), call.query.get("check_name")
    found = [r for r in world.checks.values() if r.sha == sha and name in (None, r.name)]
    if call.query.get("filter", "latest") == "latest":
        found = list({(r.app, r.name): r for r in found}.values())
    forms = [world.forms.check_run(r) for r in found]
    return 200, Page(forms, "check_runs", {"total_count": len(forms)})


@on("GET /check-runs/{check_run_id}/annotations", "checks")
def _annotations(world: World, call: Call) -> Answer:
    missing = dict.fromkeys(("start_column", "end_column", "title", "raw_details"))
    return 200, Page([missing | {"blob_href": "https://github.com"} | note for note in _check(world, call).annotations])


@on("POST /deployments", "deployments", "write")
def _deploy(world: World, call: Call) -> Answer:
    body, number = call.body, world.next_id()
    sha = _commit(world, body["ref"])
    missing = [] if body.get("required_contexts") == [] else _unmet(world, sha)
    if missing:
        raise RefusedError(409, f"Conflict: Commit status checks failed for {body['ref']}.")
    deployment = Deployment(
        number,
        sha,
        body["ref"],
        body.get("task", "deploy"),
        body.get("environment", "production"),
        body.get("description") or "",
        call.who.login,
        world.stamp(),
        body.get("payload", {}),
    )
    world.deployments[number] = deployment
    return 201, world.forms.deployment(deployment)


def _unmet(world: World, sha: str) -> list[str]:
    newest = {s.context: s.state for s in world.statuses if s.sha == sha}
    return [context for context, state in newest.items() if state != "success"]


@on("GET /deployments", "deployments")
def _deployments(world: World, call: Call) -> Answer:
    """Newest first."""
    found = [
        d
        for d in reversed(world.deployments.values())
        if all(
            call.query.get(name) in (None, value)
            for name, value in (("sha", d.sha), ("ref", d.ref), ("task", d.task), ("environment", d.environment))
        )
    ]
    return 200, Page([world.forms.deployment(d) for d in found])


@on("GET /deployments/{deployment_id}/statuses", "deployments")
def _deployment_statuses(world: World, call: Call) -> Answer:
    return 200, Page(list(reversed(_deployment(world, call).statuses)))


@on("POST /deployments/{deployment_id}/statuses", "deployments", "write")
def _deployment_status(world: World, call: Call) -> Answer:
    deployment = _deployment(world, call)
    form = world.forms.deployment_status(deployment, world.next_id(), call.who.login, world.stamp(), call.body)
    deployment.statuses.append(form)
    return 201, form


def _deployment(world: World, call: Call) -> Deployment:
    number = call.number("deployment_id")
    if number not in world.deployments:
        raise RefusedError(404, "Not Found")
    return world.deployments[number]


@on("GET /git/ref/{ref}", "contents")
def _ref(world: World, call: Call) -> Answer:
    name = f"refs/{call.arguments['ref']}"
    at = world.tip(name)
    if at is None:
        raise RefusedError(404, "Not Found")
    return 200, _ref_form(name, at)


@on("POST /git/refs", "contents", "write")
def _new_ref(world: World, call: Call) -> Answer:
    name, sha = call.body["ref"], call.body["sha"]
    if world.tip(name) is not None:
        raise RefusedError(422, "Reference already exists")
    world.move(name, sha, call.who.login)
    return 201, _ref_form(name, sha)


@on("DELETE /git/refs/{ref}", "contents", "write")
def _drop_ref(world: World, call: Call) -> Answer:
    name = f"refs/{call.arguments['ref']}"
    at = world.tip(name)
    if at is None:
        raise RefusedError(422, "Reference does not exist")
    before = world.refs()
    world.store.update_refs([RefUpdate(name, at, ZERO)])
    world.moved(before, call.who.login)
    return 204, None


def _ref_form(name: str, sha: str) -> dict[str, Any]:
    url = f"https://api.github.com/repos/octo/brain/git/{name}"
    return {"ref": name, "node_id": f"R_{name}", "url": url, "object": {"type": "commit", "sha": sha, "url": url}}


def _commit(world: World, ref: str) -> str:
    found = world.store.resolve(ref) if len(ref) == 40 else world.tip(f"refs/{ref}") or world.tip(f"refs/heads/{ref}")
    if found is None:
        raise RefusedError(422, f"No commit found for SHA: {ref}")
    return found


# GraphQL


REPOSITORY_ID = "R_4242"


def answer(world: World, token: Token, body: dict[str, Any]) -> dict[str, Any]:
    """What GitHub says to a request that has passed the contract; what goes wrong in a field is an error beside the data."""
    result = graphql_sync(
        schema(),
        body["query"],
        root_value=_Root(world, token).fields(),
        variable_values=body.get("variables"),
        operation_name=body.get("operationName"),
    )
    form: dict[str, Any] = {"data": result.data}
    if result.errors:
        form["errors"] = [{"message": e.message, "path": e.path, "type": "NOT_FOUND"} for e in result.errors]
    return form


class _Root:
    """Resolvers of the two root types."""

    def __init__(self, world: World, token: Token) -> None:
        self._world = world
        self._token = token

    def fields(self) -> dict[str, Any]:
        return {
            "viewer": self._account(self._world.accounts[self._token.account]),
            "repository": self._repository,
            "updateRefs": self._writing(self._update_refs),
            "enqueuePullRequest": self._writing(self._enqueue),
        }

    def _account(self, account: Account) -> dict[str, Any]:
        # The viewer is a `User` whatever it is; the schema knows no other type there.
        return {"__typename": account.type, "id": f"U_{account.id}", "login": account.login, "databaseId": account.id}

    def _repository(self, info: Any, owner: str, name: str, **_: Any) -> dict[str, Any] | None:
        if f"{owner}/{name}" != FULL_NAME:
            raise GraphQLError(f"Could not resolve to a Repository with the name '{owner}/{name}'.")
        return {
            "id": REPOSITORY_ID,
            "databaseId": 4242,
            "nameWithOwner": FULL_NAME,
            "pullRequest": self._pull_request,
            "pullRequests": self._pull_requests,
            "viewerPermission": self._world.accounts[self._token.account].permission.upper(),
        }

    def _pull_requests(self, info: Any, first: int, **chosen: Any) -> dict[str, Any]:
        open_ones = [p for p in self._world.open_pulls() if chosen.get("baseRefName") in (None, p.target)]
        rows = [self._pull_request(info, pull.number) for pull in reversed(open_ones)]
        return {"nodes": rows[:first], "totalCount": len(rows)}

    def _pull_request(self, info: Any, number: int) -> dict[str, Any]:
        try:
            pull = self._world.pull(number)
        except RefusedError:
            raise GraphQLError(f"Could not resolve to a PullRequest with the number of {number}.") from None
        entry = next((e for e in self._world.queue if e.number == number), None)
        return {
            "id": f"PR_{pull.id}",
            "databaseId": pull.id,
            "number": number,
            "title": pull.title,
            "state": _state(pull),
            "merged": pull.merged_at is not None,
            "headRefOid": pull.head,
            "headRefName": pull.source,
            "baseRefName": pull.target,
            "baseRefOid": pull.base,
            "isCrossRepository": pull.repository != FULL_NAME,
            "author": self._account(self._world.accounts[pull.author]),
            "reviewDecision": self._world.verdict(pull),
            "isInMergeQueue": entry is not None,
            "mergeQueueEntry": None if entry is None else self._entry(entry),
        }

    def _entry(self, entry: QueueEntry) -> dict[str, Any]:
        position = self._world.queue.index(entry) + 1
        return {"id": entry.ref, "position": position, "state": "AWAITING_CHECKS"}

    def _writing(self, act: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        def checked(info: Any, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - the schema's name
            if not self._token.may("contents", "write"):
                raise GraphQLError("Resource not accessible by integration")
            try:
                return act(input)
            except (RefusedError, GitopsError) as error:
                raise GraphQLError(str(error)) from error

        return checked

    def _update_refs(self, given: dict[str, Any]) -> dict[str, Any]:
        """All or nothing, each ref from the value that is named."""
        before = self._world.refs()
        updates = [
            RefUpdate(u["name"], u.get("beforeOid") or before.get(u["name"], "0" * 40), u["afterOid"])
            for u in given["refUpdates"]
        ]
        self._world.store.update_refs(updates)
        self._world.moved(before, self._token.account)
        return {"clientMutationId": given.get("clientMutationId")}

    def _enqueue(self, given: dict[str, Any]) -> dict[str, Any]:
        number = next(p.number for p in self._world.pulls() if f"PR_{p.id}" == given["pullRequestId"])
        entry = landing.enqueue(self._world, number, self._token.account)
        return {"clientMutationId": None, "mergeQueueEntry": self._entry(entry)}


def _state(pull: Pull) -> str:
    if pull.state == "open":
        return "OPEN"
    return "CLOSED" if pull.merged_at is None else "MERGED"
