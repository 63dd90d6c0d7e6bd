"""The REST half of the interface, continued: what is said about commits, and refs."""

from __future__ import annotations

from typing import Any

from gitops.git.port import ZERO, RefUpdate
from tests.support.github.nouns import CheckRun, Deployment, Status
from tests.support.github.rest import ROUTES, Answer, Call, Page, on
from tests.support.github.world import RefusedError, World

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
