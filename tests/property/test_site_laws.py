"""Laws of the report's pages: any text gives well-formed pages within the limit, and the same facts the same bytes."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.cluster.audit.report import AuditFinding, AuditReport, LogRecord, UsedApproval
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import ClusterTarget
from gitops.cluster.model.ledger import ApprovalUse, Debt, EntryChange, EntryKind, LedgerEntry
from gitops.cluster.model.outcome import StatusOutcome
from gitops.cluster.model.plan import NodeOutcome, RunNode, RunRecord
from gitops.cluster.policy.bundle import Bundle, PolicyAction, Rule
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic, Severity
from gitops.render.site.facts import EntryFacts, GraphFacts, PolicyFacts, RequestFacts, SiteFacts
from gitops.render.site.pages import LIMIT, pages, paths
from tests.support.effort import cases
from tests.support.random_outcomes import HOSTILE, NAMES

ALLOWED = {
    "html", "head", "meta", "title", "link", "body", "header", "a", "nav", "ul", "li", "main", "h1", "h2", "p", "dl", "dt",
    "dd", "span", "code", "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "footer", "pre", "svg", "desc", "g",
    "rect", "path", "text", "defs", "pattern",
}  # fmt: skip
VOID = {"meta", "link"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | HOSTILE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HOSTILE, inner, max_size=3),
    max_leaves=8,
)


class Page(HTMLParser):
    """Fails for tags that don't match, elements that no template has, repeated ids, and addresses of other places."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        assert tag in ALLOWED
        assert known.get("id") not in self.ids
        self.ids |= {known["id"] or ""} if "id" in known else set()
        assert not any(name.startswith("on") or name in ("style", "src") for name in known)
        assert ":" not in (known.get("href") or "").partition("#")[0]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """A document of a plan, or something like one."""
    names = st.lists(HOSTILE, max_size=3)
    node = st.fixed_dictionaries({"id": HOSTILE, "action": HOSTILE, "class": HOSTILE, "change": HOSTILE | st.none()})
    members = {
        "changes": st.lists(st.fixed_dictionaries({"resource": HOSTILE, "details": names}) | JSON, max_size=4),
        "approvals_required": st.lists(st.fixed_dictionaries({"resource": HOSTILE, "approved_by": names}), max_size=2),
        "access": st.fixed_dictionaries({"rows": st.lists(JSON, max_size=2)}) | JSON,
        "blast_radius": JSON,
        "obstacles": JSON,
        "execution_graph": st.fixed_dictionaries(
            {
                "nodes": st.lists(node, max_size=4),
                "edges": st.lists(st.fixed_dictionaries({"from": HOSTILE, "to": HOSTILE}), max_size=4),
            }
        ),
    }
    return draw(st.fixed_dictionaries({}, optional=members))


@st.composite
def entries(draw: st.DrawFn, number: int) -> EntryFacts:
    """An entry of any content, or one that cannot be read."""
    text = draw(st.lists(HOSTILE, min_size=8, max_size=8))
    resource = Address(text[0])
    change = EntryChange(resource, text[1], None, None, text[2], text[3])
    entry = LedgerEntry(
        number=number,
        kind=draw(st.sampled_from(EntryKind)),
        operation=text[4],
        at="2026-07-02T10:00:00Z",
        actor=text[5],
        target=ClusterTarget(text[0], text[1], text[2], text[3], text[4]),
        previous=None,
        source=None,
        changeset=text[6],
        plan_digest=text[7],
        config_digest=None,
        state_revision=1,
        policy_digest=text[6],
        trust_digest=text[7],
        changes=(change, change),
        authors=tuple(text),
        debts=(Debt(text[0], text[1], resource, text[2], text[3]),),
    )
    used = UsedApproval(ApprovalUse(text[1], text[2], resource, text[3]), draw(st.sampled_from(["good", text[4]])))
    node = RunNode(text[0], 0, 1, 5, 1, text[1], (text[2],), draw(st.sampled_from(NodeOutcome)))
    record = LogRecord(text[0], draw(st.sampled_from([entry, None])), (used, used))
    run = draw(st.none() | st.just(RunRecord(2, (node, replace(node, id=text[1], worker=2)))))
    return EntryFacts(number=number, commit=text[1], record=record, verdict=text[2], run=run)


@st.composite
def sites(draw: st.DrawFn) -> SiteFacts:
    """The facts of a small report."""
    name, evil, more = draw(HOSTILE), draw(HOSTILE), draw(st.lists(HOSTILE, min_size=3, max_size=3, unique=True))
    found = {number: draw(entries(number)) for number in (1, 2)}
    rule = Rule(more[0], evil, tuple(PolicyAction), queries=tuple(more))
    bundle = Bundle({evil: tuple(more), more[1]: ()}, frozenset(more), (rule, replace(rule, id=more[1])))
    problem = Diagnostic(Code.DRIFT_OPEN, Severity.WARNING, evil, name)
    request = RequestFacts(number=7, ref=evil, kept=more[0], title=more[1], form=draw(plans()), text=draw(st.text()))
    return SiteFacts(
        cluster=name,
        environment=evil,
        head=more[0],
        first=more[1],
        count=2,
        due=range(1, 3),
        entries=found,
        status=StatusOutcome(config_dir=evil, diagnostics=(problem, problem)),
        audit=AuditReport(name, more[0], 2, 1, (AuditFinding(more[0], 2, Code.LEDGER_ENTRY_INVALID, evil),), (evil,)),
        extent=evil,
        requests=(request,),
        graphs=(GraphFacts(name=draw(NAMES), problems=(evil,)),),
        scopes={f"graph.{more[2]}": evil, "cluster": ""},
        policies=(PolicyFacts(evil, more[0], bundle),),
    )


@given(sites())
@settings(max_examples=cases(40), deadline=None)
def test_any_text_gives_well_formed_pages_without_what_no_template_has(site: SiteFacts) -> None:
    made = list(pages(site))
    assert {page.path for page in made} == set(paths(site))
    for page in made:
        text = page.data.decode()
        assert len(page.data) <= LIMIT
        assert all(each.isprintable() or each == "\n" for each in text)
        if page.path.endswith(".html"):
            Page(text)
        elif page.path.endswith(".atom"):
            ET.fromstring(text)  # noqa: S314 - our own output
    assert list(pages(site)) == made


@given(st.integers(1, 200), HOSTILE)
@settings(max_examples=3, deadline=None)
def test_a_page_of_any_length_fits_and_stays_well_formed(number: int, evil: str) -> None:
    form = {"changes": [{"resource": f"{evil}{each}", "details": [evil] * 90} for each in range(number)]}
    request = RequestFacts(number=7, ref="r", kept="k", head="h", form=form, text=f"{evil}\n" * number)
    status = StatusOutcome(config_dir="")
    site = SiteFacts(
        cluster="c",
        environment="",
        head="h",
        first="f",
        count=0,
        due=range(0),
        entries={},
        status=status,
        audit=AuditReport("c", "h", 0, 0),
        extent="",
        requests=(request,),
    )
    (page,) = (each for each in pages(site) if each.path == "requests/7.html")
    assert len(page.data) <= LIMIT
    Page(page.data.decode())
    assert page.cut == ("git show k:plan.md" in page.data.decode())
