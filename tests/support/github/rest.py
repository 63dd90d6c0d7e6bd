"""The REST half of the interface: one function for each operation of the description.

A function takes the world and the `Call`, and gives status and body. Which operations there are, and what each may be asked
and may answer, is the description's business; which area of a token an operation needs is said beside its function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.github import landing
from tests.support.github.nouns import RANKS, Account, Issue, Pull, Reaction, Token
from tests.support.github.world import RefusedError, World

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
    store = world.store
    base = store.merge_base(pull.base, pull.head) or pull.base
    paths = store.changed_paths(store.commit(base).tree, store.commit(pull.head).tree)
    url = "https://github.com/octo/brain/blob/x"
    form = {"sha": pull.head, "status": "modified", "additions": 1, "deletions": 1, "changes": 2}
    form |= {"blob_url": url, "raw_url": url, "contents_url": url}
    return 200, Page([form | {"filename": path} for path in paths])


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
    if not set(call.body["labels"]) <= world.labels and not creates:
        raise RefusedError(403, "Resource not accessible by integration")
    world.labels.update(call.body["labels"])
    issue.labels += [name for name in call.body["labels"] if name not in issue.labels]
    return 200, _labels_of(world, issue)


@on("DELETE /issues/{issue_number}/labels/{name}", "pull_requests", "write")
def _unlabel(world: World, call: Call) -> Answer:
    issue = world.issue(call.number("issue_number"))
    if call.arguments["name"] not in issue.labels:
        raise RefusedError(404, "Label does not exist")
    issue.labels.remove(call.arguments["name"])
    return 200, _labels_of(world, issue)


def _labels_of(world: World, issue: Issue) -> list[dict[str, Any]]:
    return [world.forms.label(name) for name in issue.labels]
