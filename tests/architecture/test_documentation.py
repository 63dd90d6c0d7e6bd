"""Pages say what the code does: generated ones are fresh, commands exist, keys and fields are all there."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import pytest
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode

from gitops import __version__
from gitops.cli.main import build_parser
from gitops.cluster.approvals.verify import STEPS
from gitops.cluster.config.gitops_yaml import KEY_ROWS, BotConfig, parse_bot_config
from gitops.cluster.ledger.chain import ledger_ref
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.ledger.trailers import trailers
from gitops.cluster.model.approval import ApprovalStatement
from gitops.cluster.model.ledger import EntryKind, LedgerEntry
from gitops.core.codes import REGISTRY, Code
from gitops.git.hooks import _NAMES
from tests.support import cli_page, codes_page
from tests.support.docs_site import DOCS, lead, outside, pages, with_section
from tests.support.hosts_page import hosts_page
from tests.support.keys_page import keys_page
from tests.support.limits_page import limits_page
from tests.support.pages import ROOT, read_page
from tests.support.verbs_page import verbs_page

_PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
_DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))
_SHELL = ("sh", "console", "shell")


def _fences(text: str, *languages: str) -> list[str]:
    if not any(f"```{language}\n" in text for language in languages):
        return []
    return [t.content for t in MarkdownIt().parse(text) if t.type == "fence" and t.info.strip() in languages]


def _commands(text: str) -> list[str]:
    lines = [line.removeprefix("$ ") for fence in _fences(text, *_SHELL) for line in fence.splitlines()]
    return [line.partition(" | ")[0].partition("  #")[0] for line in lines if line.startswith("gitops ")]


@cache
def _shown() -> list[tuple[str, list[str]]]:
    """Every command of the pages, as its page and its words."""
    found = [(str(p.relative_to(ROOT)), c) for p in _PAGES for c in _commands(p.read_text(encoding="utf-8"))]
    return [(page, shlex.split(command, comments=True)[1:]) for page, command in found]


def test_the_page_of_codes_is_that_of_the_registry():
    assert read_page(codes_page.PAGE) == codes_page.codes_page(), "run `make docs`"


def test_every_code_is_on_the_page():
    assert set(re.findall(r"^### `([a-z0-9_]+)`$", read_page(codes_page.PAGE), re.MULTILINE)) == set(REGISTRY)


def test_the_page_of_commands_is_that_of_the_table():
    assert read_page(cli_page.PAGE) == cli_page.cli_page(), "run `make docs`"


def test_every_argument_is_explained():
    bare = {f"{name} {a.label}" for name, command in cli_page.commands() for a in command.arguments if not a.meaning}
    assert bare == set()


def test_every_command_has_a_handler_that_takes_its_inputs():
    def loaded(name: str) -> inspect.Signature:
        module, _, function = name.partition(":")
        return inspect.signature(getattr(importlib.import_module(module), function))

    for name, command in cli_page.commands():
        assert bool(command.handler) != bool(command.commands), name
        if command.handler:
            taken = [p.annotation for p in loaded(command.handler).parameters.values() if p.default is p.empty]
            made = loaded(command.inputs).return_annotation if command.inputs else "tuple[argparse.Namespace]"
            assert f"tuple[{', '.join(taken)}]" == made, name


def test_the_parser_of_one_command_line_takes_what_the_full_parser_takes():
    full, line = build_parser(), build_parser(["--as", "status", "graph", "query", "knowledge", "--limit"])
    for words in (
        ["--as", "status", "graph", "query", "knowledge", "--memory", "5"],
        ["status", "--as", "plan", "--json"],
    ):
        assert full.parse_args(words) == build_parser(words).parse_args(words)
    with pytest.raises(SystemExit):
        line.parse_args(["plan", "--show-graph"])


def test_every_command_on_a_page_is_accepted(capsys):
    parser = build_parser()

    def accepted(words: list[str]) -> bool:
        try:
            return words in (["--version"], ["--help"]) or bool(parser.parse_args(words).command)
        except SystemExit:
            return False

    assert len(_shown()) > 100
    assert [f"{page}: gitops {shlex.join(words)}" for page, words in _shown() if not accepted(words)] == []


def test_every_top_level_command_is_shown_outside_the_reference():
    shown = {word for page, words in _shown() if page != "docs/cli.md" for word in words}
    known = {name.split()[1] for name, _ in cli_page.commands() if name.count(" ") == 1}
    assert known <= shown


def test_links_lead_to_pages_and_headings_that_exist():
    lost = []
    for page in _PAGES:
        for link in _local_links(page):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in _page(target)[1]):
                lost.append(f"{page.relative_to(ROOT)}: {link}")
    assert lost == []


def _local_links(page: Path) -> Iterator[str]:
    for block in _page(page)[0]:
        for token in block.children or ():
            target = str(token.attrs.get("src" if token.type == "image" else "href", ""))
            if target and not re.match(r"[a-z]+:", target):
                yield target


@cache
def _page(path: Path) -> tuple[list[Token], set[str]]:
    """The tokens of a page, and the anchors of its headings as forges and the site make them."""
    tokens, anchors = MarkdownIt().parse(path.read_text(encoding="utf-8")), set[str]()
    for opening, title in pairwise(tokens):
        if opening.type == "heading_open":
            words = "".join(each.content for each in title.children or ())
            anchors.add(re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-"))
    return tokens, anchors


def test_the_navigation_of_the_site_has_every_page_once():
    site = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=_SiteLoader)  # noqa: S506 (a safe one)
    listed = [*pages(site["nav"])]
    assert sorted(listed) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    assert [
        page for page in listed if not page.startswith("decisions/") and not lead(page).endswith((".", "?", ":"))
    ] == []


class _SiteLoader(yaml.SafeLoader):
    """Reads the settings of the site without the objects that MkDocs makes."""


_SiteLoader.add_multi_constructor("", lambda _loader, _tag, _node: None)


def test_forges_and_the_site_read_the_same_lists():
    """The site needs four blanks before further blocks of an item, and an empty line before an item after such blocks."""
    wrong = []
    for page in sorted(DOCS.rglob("*.md")):
        lines = page.read_text(encoding="utf-8").splitlines()
        for item in SyntaxTreeNode(_page(page)[0]).walk():
            if item.type.endswith("_list") and not _depth(item) and item.map and lines[max(item.map[0] - 1, 0)].strip():
                wrong.append(f"{page.name}:{item.map[0] + 1}: put an empty line before this list")
            if item.type == "list_item" and item.map is not None:
                start, depth = item.map[0], _depth(item)
                wrong += [
                    f"{page.name}:{block.map[0] + 1}: indent this by {4 * depth}"
                    for block in item.children[1:]
                    if block.map is not None and not lines[block.map[0]].startswith(" " * 4 * depth)
                ]
                if start and item.children and not item.children[0].hidden and lines[start - 1].strip():
                    wrong.append(f"{page.name}:{start + 1}: put an empty line before this item")
    assert wrong == []


def _depth(node: SyntaxTreeNode | None) -> int:
    return 0 if node is None or node.is_root else (node.type == "list_item") + _depth(node.parent)


def test_links_out_of_the_pages_lead_to_the_repository():
    text = "[a](../LICENSE) [b](trust.md) [c](https://a.example) ![d](x.svg) [e `](../f.md#g)"
    address = "https://host.example/one/"
    assert outside("page.md", text, address) == text.replace("../", "https://host.example/one/blob/main/")
    assert outside("page.md", "see [a](../LICENSE).", "") == "see a."
    assert outside("languages/page.md", "[a](../trust.md)", address) == "[a](../trust.md)"
    assert outside("a/page.md", "[a](../../README.md#getting-started)", address) == "[a](../tutorial.md)"


def test_the_site_shows_a_section_of_the_readme_in_its_page():
    shown = with_section(read_page("tutorial.md"))
    assert "**8. " in shown
    assert "](docs/" not in shown


def _keys(rule: type, prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, kind in get_type_hints(rule).items():
        found.add(prefix + name)
        # Keys below names that users choose have another form in the table.
        for part in () if get_origin(kind) is Mapping else (kind, *get_args(kind)):
            if dataclasses.is_dataclass(part) and isinstance(part, type):
                listed = "[]" if part is not kind else ""
                found |= _keys(part, f"{prefix}{name}{listed}.")
    return found


def test_every_key_of_the_configuration_is_explained():
    keys = read_page("gitops-yaml.md").partition("## Keys\n")[2].partition("## ")[0]
    documented = set(re.findall(r"^\| `([a-z_.\[\]]+)` \|", keys, re.MULTILINE))
    assert documented == _keys(BotConfig)
    assert [key for key, row in KEY_ROWS.items() if not row.said.endswith(".")] == []
    assert read_page("gitops-yaml.md") == keys_page(), "run `make docs`"


def test_the_attributes_of_items_are_those_that_the_parser_takes() -> None:
    assert read_page("hosts.md") == hosts_page(), "run `make docs`"


def test_the_table_of_limits_is_that_of_the_checker() -> None:
    assert read_page("languages/queries.md") == limits_page(), "run `make docs`"


def test_the_table_of_permissions_is_that_of_the_server() -> None:
    assert read_page("http-api.md") == verbs_page(), "run `make docs`"


def test_the_configurations_shown_are_valid():
    shown = _fences(read_page("gitops-yaml.md"), "yaml")
    assert shown
    for text in shown:
        parse_bot_config(text.encode())


def test_the_approval_page_explains_every_bound_value_and_the_steps_with_their_codes():
    page = read_page("approval-verification.md")
    assert [f.name for f in dataclasses.fields(ApprovalStatement) if f"`{f.name}`" not in page] == []
    rows = re.findall(r"^\| (\d+)\. .+ \| (.+) \|$", page.partition("## How it is verified\n")[2], re.MULTILINE)
    listed = [(int(number), set(re.findall(r"`(\w+)`", codes))) for number, codes in rows]
    assert listed == [(number, set(step.codes)) for number, step in enumerate(STEPS, start=1)]
    assert f"`{Code.APPROVAL_QUORUM}`" in page


def test_the_ledger_page_explains_every_field_trailer_and_kind():
    page = read_page("ledger.md")
    entry = read_entry((ROOT / "tests/data/documents/entry.json").read_bytes())
    words = {f.name for f in dataclasses.fields(LedgerEntry)}
    words |= {name for name, _ in trailers(entry)}
    words |= {kind.value for kind in EntryKind}
    words.add(ledger_ref("CLUSTER").removeprefix("refs/heads/"))
    assert {w for w in words if f"`{w}`" not in page} == set()


def test_the_hook_page_names_every_hook():
    page = read_page("hooks.md")
    assert {n for names in _NAMES.values() for n in names if f"`{n}`" not in page} == set()


def test_a_decision_has_context_decision_and_cost():
    names = [path.name for path in _DECISIONS]
    assert [name for name in names if not re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", name)] == []
    parts = {p.name: re.findall(r"^## (.+)$", p.read_text(encoding="utf-8"), re.MULTILINE) for p in _DECISIONS}
    assert [name for name, found in parts.items() if found != ["Context", "Decision", "Cost"]] == []


def test_every_number_of_a_decision_has_a_page_or_is_part_of_one():
    joined = re.findall(r"^This also covers decisions? (.+)\.$", "\n".join(map(_text, _DECISIONS)), re.MULTILINE)
    numbers = [int(p.name[:4]) for p in _DECISIONS] + [
        int(found) for each in joined for found in re.findall(r"\d+", each)
    ]
    assert sorted(numbers) == list(range(1, max(numbers) + 1))


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_the_changelog_speaks_of_this_version():
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert __version__ in headings or len(headings) == 1


_CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]


@pytest.mark.parametrize(
    ("heading", "contract", "package"),
    [
        ("Wings", "wings", ""),
        ("Rooms of the cluster", "rooms of the cluster", "cluster"),
        ("Rooms of the database", "rooms of the database", "database"),
        ("Rooms of the review", "rooms of the review", "review"),
        ("Rooms of the strategies", "rooms of the strategies", "compute"),
    ],
)
def test_the_page_lists_wings_and_rooms_in_the_order_of_their_contracts(heading, contract, package):
    (found,) = (c for c in _CONTRACTS if c["name"] == contract)
    layers = [{name for name in layer.split(" | ") if not name.startswith("(")} for layer in found["layers"]]
    section = re.split(r"\n##+ ", read_page("architecture.md").partition(f"# {heading}\n")[2])[0]
    rows = [set(re.findall(r"`([a-z]+)`", row)) for row in re.findall(r"^\| (`.+?`) \|", section, re.MULTILINE)]
    assert rows == layers
    assert set().union(*rows) == {p.parent.name for p in (ROOT / "gitops" / package).glob("*/__init__.py")}


def test_every_wing_says_what_it_is_for():
    for face in (ROOT / "gitops").glob("*/__init__.py"):
        assert ast.get_docstring(ast.parse(face.read_text(encoding="utf-8"))), face


def test_the_walk_through_the_code_is_ten_files_at_most_and_all_are_there():
    section = read_page("architecture.md").partition("## One change request")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. `(gitops/.+?)`", section, re.MULTILINE)
    assert 5 < len(steps) <= 10
    assert [step for step in steps if not (ROOT / step).is_file()] == []


def test_the_page_names_the_home_of_every_dependency():
    page = read_page("architecture.md")
    homes = {home for c in _CONTRACTS if c["name"].startswith("home of") for home in c["allowed_importers"]}
    paths = {home.removeprefix("gitops.").replace(".", "/") for home in homes}
    assert {path for path in paths if f"`{path}`" not in page and f"`{path}.py`" not in page} == set()


def _source(name: str) -> str:
    return (ROOT / "gitops" / name).read_text(encoding="utf-8")
