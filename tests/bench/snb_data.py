"""A social network as the LDBC Social Network Benchmark describes it, made here: its schema, and distributions that it publishes.

From its specification are the types, the number of places, organisations and tags, the degrees (as measured on Facebook, around a
mean of n ** (0.512 - 0.028 log10 n)), how people get to know each other (45 % who study nearby, 45 % with an interest in common,
10 % by chance, and neighbours in such an order with a probability of 0.95 ** distance), threads of comments and likes. Names and
texts are made up. A message has an edge to the post that began its thread, as the SQL schemas of the benchmark have a column.
"""

from __future__ import annotations

import json
import math
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tests.bench import csv_files

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = Path(__file__).with_name("snb.pg").read_text(encoding="utf-8")
EDGES = {
    name.strip(): tuple(end.strip() for end in ends.partition("{")[0].split("->"))
    for name, _, ends in (
        line.removeprefix("edge ").partition(":") for line in SCHEMA.splitlines() if line[:5] == "edge "
    )
}
"""The types at both ends, by edge."""

_COUNTRIES, _CITIES, _UNIVERSITIES, _COMPANIES, _CLASSES, _TAGS = 111, 1_343, 6_380, 1_575, 71, 16_080
# Degrees at these percentiles on Facebook, where the mean is 190.
_PERCENTILES = (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 99, 100)
_DEGREES = (0, 10, 24, 41, 65, 97, 137, 200, 277, 435, 1_029, 5_000)
_MEAN = 190
_MOST = 1_000
_NEAR, _SHARES = 0.95, (0.45, 0.45, 0.1)
_START, _END = datetime(2010, 1, 1, tzinfo=UTC), datetime(2013, 1, 1, tzinfo=UTC)
_SECONDS = int((_END - _START).total_seconds())
_WEEK = 7 * 24 * 3600
_BROWSERS = ("Internet Explorer", "Firefox", "Chrome", "Opera", "Safari")
_SHORT = ("ok", "good", "great", "thanks", "no way!", "I see", "right", "maybe")
_POSTS = 40
_GROUP = 100


class Network:
    """The network of so many people; the same number gives the same rows. Times are seconds after 2010 while it is made."""

    def __init__(self, people: int) -> None:
        """Make it."""
        self.people = people
        self.rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._random = Random(people)  # noqa: S311 - the same network again
        self._friends: list[dict[int, int]] = [{} for _ in range(people)]
        self._messages = 0
        self._places()
        self._tags()
        self._persons()
        self._acquaintances()
        self._forums()

    def _add(self, table: str, *row: Any) -> None:
        self.rows[table].append(row)

    def _places(self) -> None:
        for nr in range(_COUNTRIES):
            self._add("Country", nr, f"Country {nr}")
        for nr in range(_CITIES):
            self._add("City", nr, f"City {nr}")
            self._add("PartOf", nr, nr % _COUNTRIES)
        for nr in range(_UNIVERSITIES):
            self._add("University", nr, f"University {nr}")
            self._add("UniversityIn", nr, nr % _CITIES)
        for nr in range(_COMPANIES):
            self._add("Company", nr, f"Company {nr}")
            self._add("CompanyIn", nr, nr % _COUNTRIES)

    def _tags(self) -> None:
        for nr in range(_CLASSES):
            self._add("TagClass", nr, f"Class {nr}")
            if nr:
                self._add("IsSubclassOf", nr, (nr - 1) // 4)
        for nr in range(_TAGS):
            self._add("Tag", nr, f"Tag {nr}")
            self._add("HasType", nr, nr % _CLASSES)

    def _persons(self) -> None:
        draw, country_of, tag_of = self._random, _Zipf(_COUNTRIES), _Zipf(_TAGS)
        self._created: list[int] = []
        self._city: list[int] = []
        self._study: list[int] = []
        self._interests: list[list[int]] = []
        for nr in range(self.people):
            country = country_of.pick(draw)
            city = country + _COUNTRIES * draw.randrange(_CITIES // _COUNTRIES)
            university = city + _CITIES * draw.randrange(_UNIVERSITIES // _CITIES)
            created, born = draw.randrange(_SECONDS // 2), date(1980, 1, 1) + timedelta(days=draw.randrange(3650))
            name = f"First {country % 10}-{int(100 * draw.random() ** 3)}"
            tongues = [f"language {country % 20}", *(["language 0"] if draw.random() < 0.6 and country % 20 else [])]
            mails = [f"p{nr}@mail{each}.example" for each in range(1 + draw.randrange(3))]
            browser, address = draw.choice(_BROWSERS), f"10.{country}.{nr // 250 % 250}.{nr % 250}"
            gender, last = draw.choice(("male", "female")), f"Last {country}-{draw.randrange(200)}"
            self._add("Person", nr, name, last, gender, born, created, address, browser, tongues, mails)
            self._add("LivesIn", nr, city)
            if draw.random() < 0.8:
                self._add("StudyAt", nr, university, born.year + 20 + draw.randrange(4))
            for company in {draw.randrange(_COMPANIES // _COUNTRIES) for _ in range(draw.randrange(4))}:
                self._add("WorkAt", nr, country + _COUNTRIES * company, born.year + 22 + draw.randrange(10))
            interests = sorted(
                {(tag_of.pick(draw) + 997 * country) % _TAGS for _ in range(1 + int(79 * draw.random() ** 3))}
            )
            for tag in interests:
                self._add("HasInterest", nr, tag)
            for known, value in ((self._created, created), (self._city, city), (self._study, university)):
                known.append(value)
            self._interests.append(interests)

    def _acquaintances(self) -> None:
        draw, everyone = self._random, range(self.people)
        mean = self.people ** (0.512 - 0.028 * math.log10(self.people))
        wanted = [min(_MOST, _degree(100 * draw.random()) * mean / _MEAN) for _ in everyone]
        nearby = sorted(everyone, key=lambda nr: (self._city[nr] % _COUNTRIES, self._city[nr], self._study[nr], nr))
        alike = sorted(everyone, key=lambda nr: (draw.choice(self._interests[nr]), nr))
        for order, share in zip((nearby, alike, list(everyone)), _SHARES, strict=True):
            for at, nr in enumerate(order):
                for _ in range(round(wanted[nr] * share / 2 + draw.random() - 0.5)):
                    far = order is not nearby and order is not alike
                    step = (
                        draw.randrange(self.people) if far else 1 + int(math.log(1 - draw.random()) / math.log(_NEAR))
                    )
                    other = order[(at + step) % self.people]
                    if other != nr and other not in self._friends[nr]:
                        since = draw.randrange(max(self._created[nr], self._created[other]), _SECONDS)
                        self._friends[nr][other] = self._friends[other][nr] = since
                        self._add("Knows", nr, other, since)

    def _forums(self) -> None:
        draw, forum = self._random, 0
        degrees = sum(map(len, self._friends)) / self.people or 1
        for owner in range(self.people):
            wall = {other: since for other, since in self._friends[owner].items() if since < _SECONDS - 60}
            posts = draw.randrange(1 + int(2 * _POSTS * len(wall) / degrees))
            self._forum(forum, owner, f"Wall of {owner}", wall, [owner] * posts)
            forum += 1
            for _ in range(draw.randrange(1, 5) if draw.random() < 0.05 else 0):
                friends = list(wall)
                size = draw.randrange(1, 1 + min(_GROUP, self.people))
                members = {
                    draw.choice(friends) if friends and draw.random() < 0.3 else draw.randrange(self.people)
                    for _ in range(size)
                }
                joined = {
                    each: draw.randrange(max(self._created[owner], self._created[each]), _SECONDS)
                    for each in sorted(members)
                }
                authors = [draw.choice(list(joined)) for _ in range(draw.randrange(2 * _POSTS))]
                self._forum(forum, owner, f"Group {forum}", joined, authors)
                forum += 1

    def _forum(self, forum: int, owner: int, title: str, members: dict[int, int], authors: Sequence[int]) -> None:
        """A forum and its posts; an author who is no member owns it."""
        self._add("Forum", forum, title, self._created[owner])
        self._add("HasModerator", forum, owner)
        for tag in self._interests[owner][:3]:
            self._add("ForumTag", forum, tag)
        for member, joined in members.items():
            self._add("HasMember", forum, member, joined)
        for author in authors:
            begin = members.get(author, self._created[author])
            self._thread(forum, author, self._random.randrange(begin, _SECONDS), members)

    def _thread(self, forum: int, author: int, at: int, members: dict[int, int]) -> None:
        """A post, its comments, and what members like."""
        draw, interests = self._random, self._interests[author]
        tags = tuple(sorted({interests[int(len(interests) * draw.random() ** 2)] for _ in range(draw.randrange(1, 4))}))
        photo = draw.random() < 0.3
        text = None if photo else self._text(tags, draw.randrange(85, 250))
        root = self._message(author, at, text, tags, (True, f"photo{self._messages}.jpg" if photo else None))
        self._add("ContainerOf", forum, root)
        self._add("RootPost", root, root)
        self._liked(root, at, members)
        parents = [(root, at, tags)]
        for _ in range(int(20 * draw.random() ** 8)):
            parent, since, above = draw.choice(parents)
            present = [member for member, joined in members.items() if joined < since]
            at = since + int(60 * (1 - draw.random()) ** -1.5)
            if not present or at >= _SECONDS:
                continue
            brief = draw.random() < 2 / 3
            own = () if brief else tuple(tag for tag in above if draw.random() > 0.5)
            said = draw.choice(_SHORT) if brief else self._text(own, draw.randrange(75, 185))
            reply = self._message(draw.choice(present), at, said, own, (False, None))
            self._add("ReplyOf", reply, parent)
            self._add("RootPost", reply, root)
            if not brief:
                parents.append((reply, at, own))
                self._liked(reply, at, members)

    def _message(
        self, author: int, at: int, text: str | None, tags: Sequence[int], kind: tuple[bool, str | None]
    ) -> int:
        """`kind`: whether it is a post, and its image. Returns its number."""
        nr, draw = self._messages, self._random
        self._messages += 1
        home = self._city[author] % _COUNTRIES
        country = home if draw.random() < 0.9 else draw.randrange(_COUNTRIES)
        self._add("Message", nr, kind[0], at, f"10.{country}.{nr % 250}.1", draw.choice(_BROWSERS), text, kind[1])
        self._add("HasCreator", nr, author)
        self._add("PostedFrom", nr, country)
        for tag in tags:
            self._add("HasTag", nr, tag)
        return nr

    def _liked(self, message: int, at: int, members: dict[int, int]) -> None:
        """One message of ten is liked, by a power law of members that follow each other."""
        draw, likers = self._random, list(members)
        if not likers or draw.random() > 0.1:
            return
        number = min(len(likers), int(1 + 999 * draw.random() ** (1 / 0.07)))
        first = draw.randrange(len(likers) - number + 1)
        for liker in likers[first : first + number]:
            begin = max(at, self._created[liker])
            if begin < min(at + _WEEK, _SECONDS):
                self._add("Likes", liker, message, draw.randrange(begin, min(at + _WEEK, _SECONDS)))

    def _text(self, tags: Sequence[int], length: int) -> str:
        words = "".join(f"About tag {tag}, " for tag in tags)
        return (words + "as people say of such things, " * 9)[:length]

    @cached_property
    def tables(self) -> dict[str, pa.Table]:
        """The rows as columns, nodes first: those of nodes are their properties, those of edges `src`, `dst` and theirs."""
        import pyarrow as pa

        kinds = {
            "I64": pa.int64(),
            "String": pa.string(),
            "Bool": pa.bool_(),
            "Date": pa.date32(),
            "[String]": pa.list_(pa.string()),
        }
        made: dict[str, pa.Table] = {}
        for name, columns in _columns().items():
            values = list(zip(*self.rows[name], strict=True)) or [()] * len(columns)
            arrays = [
                pa.array([each * 1_000_000 + _MICROSECONDS for each in cells], pa.timestamp("us"))
                if kind == "DateTime"
                else pa.array(cells, kinds[kind])
                for kind, cells in zip(columns.values(), values, strict=True)
            ]
            made[name] = pa.table(arrays, list(columns))
        return made

    def parquet(self, folder: Path) -> dict[str, Path]:
        """A file of each table."""
        import pyarrow.parquet as pq

        paths = {name: folder / f"{name}.parquet" for name in self.tables}
        for name, path in paths.items():
            pq.write_table(self.tables[name], path)
        return paths

    def comma_separated(self, folder: Path) -> dict[str, Path]:
        """A file of each table for PostgreSQL."""
        paths = {name: folder / f"{name}.csv" for name in self.tables}
        for name, path in paths.items():
            with path.open("wb") as file:
                csv_files.write(self.tables[name], file)
        return paths

    def records(self, folder: Path) -> Path:
        """The file of the records as our loader takes them."""
        path = folder / "network.ndjson"
        with path.open("w", encoding="utf-8") as file:
            for name, columns in _columns().items():
                for row in self.rows[name]:
                    file.write(json.dumps(_record(name, columns, row), separators=(",", ":")) + "\n")
        return path


class _Zipf:
    """Numbers below `count`, the n-th as often as 1 / n."""

    def __init__(self, count: int) -> None:
        self._sums = list(accumulate(1 / rank for rank in range(1, count + 1)))

    def pick(self, draw: Random) -> int:
        return bisect(self._sums, draw.random() * self._sums[-1])


_MICROSECONDS = int(_START.timestamp() * 1_000_000)


def moment(seconds: int) -> datetime:
    """A time of the network."""
    return _START + timedelta(seconds=seconds)


def _degree(percentile: float) -> float:
    at = bisect(_PERCENTILES, percentile) - 1
    (low, high), (least, most) = _PERCENTILES[at : at + 2], _DEGREES[at : at + 2]
    return least + (most - least) * (percentile - low) / (high - low)


def _columns() -> dict[str, dict[str, str]]:
    """The type of each column of each table, from the schema."""
    found: dict[str, dict[str, str]] = {}
    words: Iterator[str] = iter(SCHEMA.replace("@key", "").replace("?", "").split())
    for word in words:
        if word in ("node", "edge"):
            name = next(words).rstrip(":")
            found[name] = {"src": "I64", "dst": "I64"} if word == "edge" else {}
        elif word.endswith(":"):
            found[name][word.rstrip(":")] = next(words)
    return found


def _record(name: str, columns: dict[str, str], row: Sequence[Any]) -> dict[str, Any]:
    cells = {
        column: cell
        if cell is None or kind not in ("DateTime", "Date")
        else (f"{moment(cell):%Y-%m-%dT%H:%M:%SZ}" if kind == "DateTime" else str(cell))
        for (column, kind), cell in zip(columns.items(), row, strict=True)
    }
    if name not in EDGES:
        return {"type": name, "data": {column: cell for column, cell in cells.items() if cell is not None}}
    source, target, *_ = row
    data = {column: cell for column, cell in cells.items() if column not in ("src", "dst")}
    return {"edge": name, "from": str(source), "to": str(target), **({"data": data} if data else {})}
