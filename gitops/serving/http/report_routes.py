"""The pages of a written report, below `/-/report/`.

A report names people, rules and waiting changes of the whole cluster, so it needs the permission of an operator of the server.
"""

from __future__ import annotations

from gitops.cluster.policy.bundle import PolicyAction
from gitops.repository.report_folder import PAGE_HEADERS
from gitops.serving.answers import BodyAnswer, not_found
from gitops.serving.http.call import Call
from gitops.serving.http.route import Route

_HTML = "text/html"


async def read_report(call: Call) -> BodyAnswer:
    """Return a page of the report."""
    call.require(PolicyAction.RELOAD)
    report = call.context.report
    if report is None:
        raise not_found(
            "this server has no report; start it with --pages DIR, the folder of gitops report --output DIR"
        )
    path = "/".join(call.values[name] for name in ("folder", "page") if name in call.values)
    found = await call.work(lambda: report.page(path))
    if found is None:
        raise not_found("the report has no such page")
    return BodyAnswer(200, found.data, found.media_type, PAGE_HEADERS)


ROUTES = (
    Route(
        "GET",
        "/-/report/",
        "readReport",
        "The first page of the report",
        read_report,
        _HTML,
        cached=True,
        problems=(404,),
    ),
    Route(
        "GET",
        "/-/report/{page}",
        "readReportPage",
        "A page of the report",
        read_report,
        _HTML,
        cached=True,
        problems=(404,),
    ),
    Route(
        "GET",
        "/-/report/{folder}/{page}",
        "readReportPageIn",
        "A page in a folder of the report",
        read_report,
        _HTML,
        cached=True,
        problems=(404,),
    ),
)
