"""A change request as a clone sees it, without the forge where git alone is enough.

1. `forge.kind` of gitops.yaml says where requests are: in refs of the repository (`local`), or on a forge with a web API.
2. A forge with a web API keeps the head of request N behind a ref that only it moves (`refs/pull/N/head`,
   `refs/merge-requests/N/head`). What would be merged is that head into the branch of the cluster, as the plan comment has it.
3. Without such a ref the forge is asked, with the token of the environment.
4. Where gitops.yaml does not name the kind, the refs of the remote show it. Any of its writers may add refs; but what an
   approver signs is what the command shows, or what it names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge.port import ChangeRequest, RequestState
from gitops.forge.registry import FORGES
from gitops.git.remote import SelfRemote
from gitops.repository.project import Project
from gitops.repository.wiring.forge import LOCAL, choose_forge, open_forge
from gitops.repository.wiring.system import Setting

if TYPE_CHECKING:
    from gitops.forge.port import Forge


def find_request(
    project: Project, own_forge: Callable[[], Forge], setting: Setting, rule: ClusterRule, number: int
) -> ChangeRequest:
    """Change request `number` for a cluster; `own_forge` opens the forge in refs of the repository.

    Raises GitopsError `request_not_found`, RemoteError.
    """
    config, remote = project.config(), project.tools.remote
    kind = config.forge.kind
    own = f"refs/gitops/requests/{number}/meta"
    if kind == LOCAL or (kind is None and own in remote.refs(own)):
        return own_forge().request(number)
    for ref in dict.fromkeys(row.head_ref.format(number) for name, row in FORGES.items() if kind in (None, name)):
        head = remote.refs(ref).get(ref)
        if head is not None:
            return ChangeRequest(
                number=number,
                title="",
                source="",
                target=rule.ref,
                head=head,
                state=RequestState.OPEN,
                opened_at="",
                head_ref=ref,
                fork=True,
            )
    origin = setting("remote.origin.url")
    if kind is None and (origin is None or not isinstance(remote, SelfRemote)):
        return own_forge().request(number)
    if kind is None:
        detail = f"this bare repository has no request {number}; if it is a clone, add --remote origin"
        raise GitopsError(Code.REQUEST_NOT_FOUND, detail)
    choice = choose_forge(kind, os.environ, setting, config.forge, origin)
    if choice.silent:
        detail = f"the remote has no ref with the head of request {number}; to ask {kind}, set GITOPS_TOKEN"
        raise GitopsError(Code.REQUEST_NOT_FOUND, detail)
    return open_forge(choice, time.sleep, project.tools.clock)[0].request(number)
