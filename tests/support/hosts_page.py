"""The tables of attributes in docs/hosts.md, from those of the parser: `python -m tests.support.hosts_page`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gitops.cluster.config.host_forms import row_of
from gitops.cluster.config.item_files import FILE_KEYS, ON
from gitops.cluster.config.keys import CLUSTER_KEYS
from gitops.cluster.model.host import ATTRIBUTES, CHECK_ATTRIBUTES, COMMON, REQUIRED, Attribute, AttributeForm
from tests.support.pages import read_page, write_page

PAGE = "hosts.md"
START, END = "<!-- tables -->\n", "<!-- /tables -->\n"


def hosts_page() -> str:
    """The page with the tables in place of those that it has."""
    before, _, rest = read_page(PAGE).partition(START)
    return f"{before}{START}\n{''.join(_tables())}{END}{rest.partition(END)[2]}"


def _tables() -> Iterator[str]:
    yield "### Keys of a host\n\n| key | meaning |\n|---|---|\n"
    yield from (
        f"| `{key.removeprefix('hosts.*.')}` | {words} |\n"
        for key, words in CLUSTER_KEYS.items()
        if key.startswith("hosts.*.") and not key.endswith(".vars.*")
    )
    yield "\n### Keys of a resource file\n\n| key | meaning |\n|---|---|\n"
    yield from (f"| `{key}` | {words} |\n" for key, words in FILE_KEYS.items())
    yield "\n### Keys of every item\n\n| key | value | default | meaning |\n|---|---|---|---|\n"
    yield f"| `on` | list of hosts | | {ON} |\n"
    yield from _rows(COMMON)
    for kind, table in ATTRIBUTES.items():
        yield f"\n### `{kind.value}`\n\n{kind.words}\n\n| key | value | default | meaning |\n|---|---|---|---|\n"
        yield from _rows(table)
    yield "\n### Checks of a `ready` item\n\n| key | value | default | meaning |\n|---|---|---|---|\n"
    yield from _rows(CHECK_ATTRIBUTES)
    yield "\n"


def _rows(table: Mapping[str, Attribute]) -> Iterator[str]:
    for name, attribute in table.items():
        default = "required" if attribute.default is REQUIRED else row_of(attribute).said_default
        yield f"| `{name}` | {_value(attribute)} | {default} | {attribute.words} |\n".replace("|  |", "| |")


def _value(attribute: Attribute) -> str:
    if attribute.values:
        return " or ".join(f"`{each}`" for each in attribute.values)
    if attribute.form in (AttributeForm.NUMBER, AttributeForm.SECONDS):
        return f"{attribute.least} to {attribute.most}"
    return attribute.form.value


if __name__ == "__main__":
    write_page(PAGE, hosts_page())
