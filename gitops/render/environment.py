"""The template engine, restricted so that a template can only lay out escaped values.

Templates are built in or come from the target branch; values can come from anywhere. The same rules apply to both kinds
of templates:

1. Every value passes one of the filters `code`, `text`, `remedy`, `block`, `link` or `step`; only whole numbers and the
   results of a filter, a macro or `section` may be printed. Anything else stops rendering.
2. Templates use a small part of the language, listed below. They can't build strings, call methods or read private names.
   Fixed text contains no HTML, code marks, escapes or lines that a forge could interpret as commands; `section` creates
   folds and `block` creates fences.
3. Templates can refer only to the built-in templates and their overrides. An undefined name stops rendering.
4. Work is limited: loops, macros, filters and printed text share one limit.

If a template of the repository breaks a rule, the caller gets the place and uses the built-in templates.

HTML pages (`render_page`) have only built-in templates. Values are escaped automatically, invisible characters are spelled
out, and long values are cut. Source: https://jinja.palletsprojects.com/en/stable/sandbox/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from importlib.abc import Traversable
from importlib.machinery import SourceFileLoader
from importlib.resources import files
from itertools import islice
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import Any, cast
from urllib.parse import quote

from jinja2 import (
    BaseLoader,
    Environment,
    StrictUndefined,
    Template,
    TemplateError,
    TemplateNotFound,
    compiler,
    nodes,
    pass_context,
)
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS
from markupsafe import Markup as Markup  # noqa: PLC0414 - pictures are made of it, and this is its one home

import gitops
from gitops.core.dataclass import dataclass
from gitops.core.errors import BugError
from gitops.render import markdown
from gitops.render.characters import visible
from gitops.render.markdown import MOST_SECTIONS, MUST_KEEP, TITLE, Section
from gitops.render.migrations import in_words

BUILT_IN = "builtin/"
"""Prefix that selects the built-in template, even if the repository has a template with that name."""

TEMPLATE_LIMIT = 65_536
"""Maximum number of characters in a template."""

# How much work a comment can take, and the additional work for each change, migration or warning of a plan.
_WORK, _WORK_PER_ITEM = 8_000_000, 2_000
_UNBOUNDED = 1 << 62
_STEP = 50
_DEPTH = 60
_HEAD_LIMIT = 4_000
_LEAST_RANK, _LAST_RANK = 1, 99
# Filters remove control characters and templates cannot contain them, so only `section` can start a section.
_START, _FIELD = "\x1e", "\x1f"
# These enclose each escaped value. Without them, the code marks of two adjacent values would join, and neither would be
# code.
_OPEN, _CLOSE = "\x1c", "\x1d"

_KNOWN_NODES = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.Getattr, nodes.Getitem, nodes.Filter,
    nodes.Test, nodes.If, nodes.For, nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.CondExpr, nodes.Macro,
    nodes.Call, nodes.Keyword, nodes.Assign, nodes.Import, nodes.FromImport, nodes.Include, nodes.Tuple, nodes.List, nodes.Sub,
)  # fmt: skip
_RESERVED = frozenset({"self", "super", "caller", "varargs", "kwargs"})
_MEMORY = re.compile(r" at 0x[0-9a-f]+")
# These are single characters, because a text can be joined from pieces.
_LIVE_TEXT = re.compile(r"[`\\<~]|\$\Z|(?:\A|\n)[^\S\n]*/")
_LINKED_VALUE = re.compile(r"\]\([^)]*\x1c")
_VALUE = re.compile(f"{_OPEN}[^{_CLOSE}]*{_CLOSE}")


@dataclass(frozen=True, slots=True)
class TemplateProblem:
    """The reason why a repository's template could not be used, with its name and the line if known."""

    name: str
    line: int
    why: str


class _RuleError(TemplateError):
    """Raised for a template that breaks a rule of this module."""

    def __init__(self, message: str, lineno: int = 0) -> None:
        super().__init__(message)
        self.lineno = lineno


def render_sections(template: str, values: Mapping[str, object]) -> tuple[Section, ...]:
    """Render a built-in template and split it at its `section` marks. Text before the first mark is always kept.

    Raises BugError if the template breaks a rule.
    """
    try:
        return _sections(template, values, {})
    except TemplateError as error:
        raise BugError(f"template {template}: {error}") from error


def render_own(
    template: str, values: Mapping[str, object], own: Mapping[str, str]
) -> tuple[Section, ...] | TemplateProblem:
    """Render like `render_sections`, but use the repository's templates by name, such as `plan.md.j2`.

    Returns a TemplateProblem if one of them breaks a rule.
    """
    try:
        return _sections(template, values, own)
    except Exception as error:  # noqa: BLE001 - a template of the repository may fail in any manner, which must not fail the report
        return _explain(error, own, template)


def _sections(template: str, values: Mapping[str, object], own: Mapping[str, str]) -> tuple[Section, ...]:
    items = sum(len(value) for value in values.values() if isinstance(value, tuple))
    # The built-in templates loop over a plan only once, so they need no limit.
    work = _WORK + _WORK_PER_ITEM * items if own else _UNBOUNDED
    text = "".join(_Environment(own, work).get_template(template).generate(**values))
    # A value cannot start a link on its own, because it is escaped.
    if _LINKED_VALUE.search(_VALUE.sub(_OPEN + _CLOSE, text)):
        raise _RuleError("a value is the address of a link; use the filter link")
    text = text.replace(_CLOSE + _OPEN, " ").replace(_OPEN, "").replace(_CLOSE, "")
    head, *parts = text.split(_START)
    if len(head) > _HEAD_LIMIT:
        raise _RuleError(f"more than {_HEAD_LIMIT} characters precede the first section")
    if len(parts) > MOST_SECTIONS:
        raise _RuleError(f"there are more than {MOST_SECTIONS} sections")
    sections = [Section("Head", MUST_KEEP, head)]
    for part in parts:
        title, rank, fold, number, body = part.split(_FIELD, 4)
        sections.append(Section(title, int(rank), body, fold == "1", int(number) if number else None))
    return tuple(sections)


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox for one rendering, with its own work counter."""

    intercepted_binops = frozenset({"-"})

    def __init__(self, own: Mapping[str, str] = MappingProxyType({}), work: int = _UNBOUNDED) -> None:
        # Autoescape marks a macro's output as safe. The filters have already escaped it for Markdown, and HTML escaping
        # would not.
        super().__init__(
            loader=_Loader(own),
            undefined=StrictUndefined,
            autoescape=True,
            finalize=_printed,
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
        )
        self.left = work
        self.filters = {name: self._counted(escape) for name, escape in _FILTERS.items()}
        self.filters |= {"length": len, "top": self._top}
        self.tests = {name: TESTS[name] for name in ("defined", "undefined", "none")}
        self.globals = {"section": _mark, "_spend": self.spend}

    def spend(self, characters: int = 0) -> None:
        """Count one step and its output. Raises TemplateError above the limit."""
        self.left -= _STEP + characters
        if self.left < 0:
            raise _RuleError("it does more work than a comment needs")

    def is_safe_callable(self, obj: Any) -> bool:
        """Return whether a callable is a macro or a function of this module. Methods of values are never allowed."""
        return isinstance(obj, Macro) or obj is _mark or obj == self.spend

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return an item of a list or map. A slice of escaped text is refused, because it would not be escaped."""
        if isinstance(obj, str):
            raise SecurityError("a text has no items")
        return super().getitem(obj, argument)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Allow subtraction only between numbers."""
        if not isinstance(left, int) or not isinstance(right, int):
            raise SecurityError("only numbers can be subtracted")
        return super().call_binop(context, operator, left, right)

    def _counted(self, escape: Callable[..., str]) -> Callable[..., Markup]:
        def filtered(value: Any, *arguments: Any) -> Markup:
            escaped = escape(value, *arguments)
            self.spend(len(escaped))
            return Markup(f"{_OPEN}{escaped}{_CLOSE}")  # noqa: S704 - this is the one place where escaped text is marked so

        return filtered

    def _top(self, values: Any, most: object) -> Any:
        """Return the first `most` items of a list."""
        if isinstance(values, str) or not isinstance(most, int) or most < 0:
            raise _RuleError("top gives the first items of a list")
        found = tuple(islice(values, most))
        self.spend(len(found))
        return found


class _Loader(BaseLoader):
    """Finds a template by name, checks it, and adds the counting of its work."""

    def __init__(self, own: Mapping[str, str]) -> None:
        self._own = own

    def load(
        self,
        environment: Environment,
        name: str,
        globals: MutableMapping[str, Any] | None = None,  # noqa: A002
    ) -> Template:
        """Return the template called `name`: the repository's own, otherwise the built-in one."""
        text = None if name.startswith(BUILT_IN) else self._own.get(name)
        if text is None:
            code = _built_in(name.removeprefix(BUILT_IN))
        elif len(text) > TEMPLATE_LIMIT:
            raise _RuleError(f"{name} is longer than {TEMPLATE_LIMIT} characters")
        else:
            code = _compiled(name, text)
        return environment.template_class.from_code(environment, code, globals or {}, None)


def _templates() -> Traversable:
    """Return the template folder in an installed wheel, otherwise in the source checkout."""
    packaged = files(gitops) / "_data" / "templates"
    return packaged if packaged.is_dir() else Path(gitops.__file__).resolve().parent.parent / "templates"


def _built_in(name: str) -> CodeType:
    """Return the compiled code of a built-in template. Raises TemplateNotFound."""
    file = _templates() / name
    if "/" in name or not name.endswith(".md.j2") or not file.is_file():
        raise TemplateNotFound(name)
    full = f"{BUILT_IN}{name}"
    return KeptCode(file, full, partial(_compiled, full), (__file__, compiler.__file__)).code


@lru_cache(maxsize=32)
def _compiled(name: str, text: str) -> CodeType:
    """Compile a template. Raises TemplateError with the line if it breaks a rule."""
    environment = _Environment()
    tree = environment.parse(text, name, name)
    # Only the allowed part of the language; each problem is reported with its line.
    stack: list[tuple[nodes.Node, int, int]] = [(tree, 1, 0)]
    while stack:
        node, line, depth = stack.pop()
        line = node.lineno or line
        if depth > _DEPTH:
            raise _RuleError("it is nested too deeply", line)
        for problem in _problems(node):
            raise _RuleError(problem, line)
        stack.extend((child, line, depth + 1) for child in node.iter_child_nodes())
    bodies: list[Any] = [tree, *tree.find_all((nodes.For, nodes.Macro))]
    for node in bodies:
        # A call that counts each pass through the body, with the length of the fixed text in it.
        length = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        call = nodes.Call(nodes.Name("_spend", "load"), [nodes.Const(length)], [], None, None)
        node.body.insert(0, nodes.ExprStmt(call).set_lineno(node.lineno).set_environment(environment))
    return environment.compile(tree, name, name)


def _problems(node: nodes.Node) -> Iterator[str]:
    match node:
        case nodes.TemplateData(data=data):
            if _LIVE_TEXT.search(data) or visible(data, keep="\n\t") != data:
                yield "fixed text has HTML, a code mark, an escape, a hidden character, or a line that begins with a slash"
        case nodes.Name(name=name) if name.startswith("_") or name in _RESERVED:
            yield f"the name {name} is reserved"
        case nodes.For(test=test, recursive=recursive) if test is not None or recursive:
            yield "a loop has a condition or calls itself"
        case nodes.Assign(target=target) if not isinstance(target, nodes.Name):
            yield "only a name can be set"
        case nodes.Import(template=named) | nodes.FromImport(template=named) | nodes.Include(template=named) if (
            not isinstance(named, nodes.Const)
        ):
            yield "a template is named by a fixed text"
        case nodes.Compare():
            if not _bounded(node):
                yield "a comparison needs a fixed value, and `in` a fixed list"
        case _ if not isinstance(node, _KNOWN_NODES):
            yield f"{type(node).__name__} is not for templates"


def _bounded(node: nodes.Compare) -> bool:
    """Return whether a comparison takes bounded time."""
    left: nodes.Expr = node.expr
    for operand in node.ops:
        right = operand.expr
        needed = (right,) if operand.op in ("in", "notin") else (left, right)
        if not any(isinstance(each, nodes.Const | nodes.Tuple | nodes.List) for each in needed):
            return False
        left = right
    return True


def _explain(error: Exception, own: Mapping[str, str], template: str) -> TemplateProblem:
    """Return the place of a failure: the error's own, otherwise the innermost template line in its traceback."""
    name, line = template if template in own else next(iter(sorted(own))), 0
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in own:
            name, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    named = getattr(error, "name", None)
    if isinstance(named, str) and named in own:
        name = named
    line = getattr(error, "lineno", None) or line
    match error:
        case TemplateNotFound():
            why = f"the template {error} does not exist"
        case RecursionError():
            why, line = "it is nested too deeply, or calls itself", 0
        case TemplateError():
            why = error.message or type(error).__name__
        case _:
            why = f"{type(error).__name__}: {error}"
    # Without memory addresses, the same failure always has the same message.
    first = _MEMORY.sub("", why.partition("\n")[0]).rstrip(". ")
    return TemplateProblem(name, line, first[: markdown.VALUE_LIMIT])


def _mark(title: object, rank: object, *, fold: object = False, number: object = None) -> Markup:
    """Return the start of a section. Title and rank must be fixed. `number` follows the title of a fold."""
    if not isinstance(title, str) or not TITLE.match(title):
        raise _RuleError("the title of a section is a few plain words")
    if not isinstance(rank, int) or not _LEAST_RANK <= rank <= _LAST_RANK:
        raise _RuleError(f"the rank of a section is a number from {_LEAST_RANK} to {_LAST_RANK}")
    if number is not None and not isinstance(number, int):
        raise _RuleError("the number of a section is a whole number")
    shown = "" if number is None else f"{number:d}"
    return Markup(f"{_START}{title}{_FIELD}{rank:d}{_FIELD}{int(fold is True)}{_FIELD}{shown}{_FIELD}")  # noqa: S704 - checked above


# With the context, jinja calls the filter on every run, even for a constant text, which is a value like any other.
@pass_context
def _printed(context: Context, value: object) -> object:
    if isinstance(value, Markup):
        environment = context.environment
        if isinstance(environment, _Environment):
            environment.spend(len(value))
        return value
    if isinstance(value, int | StrictUndefined):
        return value
    raise _RuleError("a value is printed without a filter")


_FILTERS: Mapping[str, Callable[..., str]] = {
    "code": markdown.code,
    "remedy": markdown.remedy,
    "text": markdown.text,
    # A block starts at the beginning of a line and outside of lists, wherever a template prints it.
    "block": lambda value, language="": f"\n\n{markdown.block(value, language)}\n\n",
    "link": markdown.link,
    "step": in_words,
}


# -- HTML pages --------------------------------------------------------------------------------------------------------


_PAGES = "site"
_LONGEST_VALUE = 2_000
_SHORT_ID = 12


def page_file(name: str) -> bytes:
    """Return a file that pages use as it is, such as their style sheet."""
    return (_templates() / _PAGES / name).read_bytes()


@lru_cache(maxsize=1)
def page_form() -> str:
    """Return a digest of the programs and templates that give pages their form."""
    found = sha256(gitops.__version__.encode())
    parts = (_templates() / _PAGES, files(gitops) / "render" / "site")
    for file in sorted(
        (each for part in parts for each in part.iterdir() if each.is_file()), key=lambda each: each.name
    ):
        found.update(sha256(file.read_bytes()).digest())
    return found.hexdigest()


def render_page(template: str, values: Mapping[str, object]) -> str:
    """Render an HTML or XML page. Texts in `values` may be hostile; only `Markup` is printed as it is.

    Raises BugError if the template is wrong.
    """
    try:
        return "".join(_pages().get_template(template).generate(**values))
    except TemplateError as error:
        raise BugError(f"template {template}: {error}") from error


@lru_cache(maxsize=1)
def _pages() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        loader=_PageLoader(),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,
    )
    environment.filters = {"address": in_address, "joined": _joined, "short": lambda value: str(value)[:_SHORT_ID]}
    environment.tests = {name: TESTS[name] for name in ("none", "in", "defined")}
    return environment


class _PageLoader(BaseLoader):
    """Finds the built-in templates of pages."""

    def load(
        self,
        environment: Environment,
        name: str,
        globals: MutableMapping[str, Any] | None = None,  # noqa: A002
    ) -> Template:
        """Return the template called `name`."""
        file = _templates() / _PAGES / name
        if "/" in name or not file.is_file():
            raise TemplateNotFound(name)

        def compiled(text: str) -> CodeType:
            return environment.compile(text, name, name)

        code = KeptCode(file, f"{_PAGES}/{name}", compiled, (__file__, compiler.__file__)).code
        return environment.template_class.from_code(environment, code, globals or {}, None)


def _shown(value: object) -> object:
    """Return a value of a page as printed. Text is escaped afterwards."""
    if isinstance(value, Markup | StrictUndefined):
        return value
    if isinstance(value, str):
        text = visible(str(value))
        return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _RuleError(f"a page prints text and numbers, not {type(value).__name__}")


def in_address(value: object) -> str:
    """Return text as part of an address or an id, as ASCII. Different texts stay different."""
    return quote(str(value), safe=".-_", errors="surrogatepass")


def _joined(values: Iterator[object]) -> str:
    return ", ".join(map(str, values))


# -- compiled built-in templates, cached by Python like its modules ----------------------------------------------------


class KeptCode(SourceFileLoader):
    """A loader that treats a template like a Python source file.

    Compiling a template takes longer than the rest of a comment. Python reads and writes the cached code (PEP 3147).
    Nothing is cached without write access, or with `PYTHONDONTWRITEBYTECODE`. Cached code is used if the template, its
    name and the programs that compile it have not changed.
    """

    def __init__(self, file: Traversable, name: str, compiled: Callable[[str], CodeType], by: Sequence[str]) -> None:
        """Create the loader.

        `compiled` compiles the template's text; `by` are the source files of the compiling programs.
        """
        super().__init__(name, str(file))
        self._text = file.read_bytes()
        self._compiled = compiled
        self._by = by

    @property
    def code(self) -> CodeType:
        """The template's code."""
        return cast("CodeType", self.get_code(self.name))

    def path_stats(self, _path: object) -> dict[str, int]:
        """Return the values that Python compares with the cached code.

        These are the size and, in place of the date, 32 bits of a digest, because a date proves little.
        """
        files = [Path(each).stat() for each in self._by]
        programs = " ".join(f"{each.st_size} {each.st_mtime_ns}" for each in files)
        found = sha256(f"{self.name}\n{programs}\n".encode() + self._text).digest()
        return {"mtime": int.from_bytes(found[:4], "little"), "size": len(self._text)}

    def get_data(self, path: str) -> bytes:
        """Return the template's text, or the bytes at the path of its cached code."""
        return self._text if path == self.path else super().get_data(path)

    def source_to_code(self, data: bytes, _path: object) -> CodeType:  # type: ignore[override]
        """Compile the template's text."""
        return self._compiled(data.decode())
