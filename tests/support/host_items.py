"""Items of hosts in normal form, without a folder that declares them."""

from __future__ import annotations

from typing import Any

from gitops.cluster.model.host import ATTRIBUTES, Item, ItemType, Use, default_timeout_s
from gitops.core.canonical import digest


def item(kind: str, name: str, *, host: str = "web1", content: bytes | str | None = None, **given: Any) -> Item:
    """An item with the defaults of its type. `content` is bytes, or the name of a secret as text."""
    type_ = ItemType(kind)
    common = {each: given.pop(each) for each in ("depends_on", "timeout_s", "adopt", "ignore") if each in given}
    stated = {each: row.default for each, row in ATTRIBUTES[type_].items() if row.use is not Use.SOURCE}
    assert given.keys() <= stated.keys(), given
    if content is not None:
        secret = isinstance(content, str)
        stated["content"] = {"secret": content} if secret else {"sha256": digest(content), "size": len(content)}
    if type_ is ItemType.FILE:
        stated["mode"] = "0600" if isinstance(content, str) else "0644"
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in (stated | given).items()}
    timeout = {"timeout_s": default_timeout_s(type_)}
    return Item(host=host, type=type_, id=name, attributes=plain, **{**timeout, **common})
