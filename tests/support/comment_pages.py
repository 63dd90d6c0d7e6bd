"""The examples and pictures of `docs/comments.md`, made from comments of the week in `tests/data/week`.

`python -m tests.support.comment_pages` writes the examples into the page. `python -m tests.support.comment_pages pictures` draws
the pictures again; it needs the Debian packages chromium and pngquant. `docs/pictures/comments.json` has the digest of the text
that each picture shows, so that a test finds a picture of an older text.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from markdown_it import MarkdownIt

from tests.support.pages import ROOT, read_page, write_page

PAGE = "comments.md"
PICTURES = ROOT / "docs" / "pictures"
DIGESTS = PICTURES / "comments.json"
_WEEK = ROOT / "tests" / "data" / "week" / "github"
_WIDTH, _SCALE = 880, 1.5


@dataclass(frozen=True)
class Sample:
    """A comment of the week: the number of its step, and which of the comments of that step it is."""

    name: str
    step: int
    which: int
    title: str

    @property
    def text(self) -> str:
        """The comment with sample values for the commits, digests and ids that the week leaves out."""
        (file,) = _WEEK.glob(f"{self.step:02}-*.md")
        bodies = re.findall(r"^(`{3,})markdown\n(.*?)\n\1$", file.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        body: str = bodies[self.which][1]
        digest = _hex(self.name)
        body = body.replace("DIGEST", digest).replace("plan `COMMIT`", f"plan `{digest[:12]}`")
        numbers: Iterator[int] = iter(range(1_000))
        body = re.sub(r"\[`COMMIT`\]\(([^)]*)COMMIT\)", lambda found: _linked(found[1], next(numbers)), body)
        body = re.sub(r"COMMIT", lambda _: _hex(str(next(numbers)))[:12], body)
        return re.sub(r"\bID\b", "01K7Q2M5V8XW3Y6Z9A4B5C6D7E", body).replace("TIME", "2026-06-11T08:00:00Z")


def _hex(seed: str) -> str:
    return sha256(seed.encode()).hexdigest()


def _linked(address: str, number: int) -> str:
    commit = _hex(str(number))[:40]
    return f"[`{commit[:12]}`]({address}{commit})"


SAMPLES = (
    Sample("small", 2, 0, "A query is added to a file of 22"),
    Sample("delete", 9, 0, "A graph with 2 rows is deleted, and needs an approval"),
    Sample("lossy", 7, 0, "A migration drops three types of a graph that has rows"),
    Sample("access", 14, 0, "A policy gives a group more access"),
    Sample("stuck", 5, 0, "A migration is not supported, so the plan cannot land"),
    Sample("applied", 9, 4, "The approved delete was applied"),
    Sample("drift", 21, 0, "The data of a graph is missing"),
)


def examples(page: str) -> str:
    """The page with the example behind each `<!-- comment NAME -->`, up to `<!-- end -->`, made again."""
    known = {each.name: each for each in SAMPLES}

    def made(found: re.Match[str]) -> str:
        name, _, part = found[1].partition(" ")
        text = known[name].text
        shown = text.partition("\n\n")[2]
        if part:
            shown = shown.partition("\n\n<details>")[0]
        return f"<!-- comment {found[1]} -->\n\n````markdown\n{shown}\n````\n\n<!-- end -->"

    return re.sub(r"<!-- comment ([a-z ]+) -->\n.*?<!-- end -->", made, page, flags=re.DOTALL)


# -- pictures ----------------------------------------------------------------------------------------------------------

_STYLES = {
    "github": """
body{background:#fff;color:#1f2328;font:14px/1.5 -apple-system,"Segoe UI","Noto Sans",Helvetica,Arial,sans-serif}
.box{border:1px solid #d1d9e0;border-radius:6px} .head{background:#f6f8fa;border-bottom:1px solid #d1d9e0;color:#59636e}
.head b{color:#1f2328} a{color:#0969da;text-decoration:none} code{background:#818b981f;border-radius:6px;padding:.2em .4em}
pre{background:#f6f8fa;border-radius:6px} h3{font-size:1.25em} th,td{border:1px solid #d1d9e0} .label{border:1px solid #d1d9e0;
border-radius:2em;padding:0 7px;font-size:12px} hr{border:0;background:#d1d9e0;height:.25em}
""",
    "gitea": """
body{background:#fff;color:#212529;font:14px/1.5 "Segoe UI",system-ui,Helvetica,Arial,sans-serif}
.box{border:1px solid #d0d7de;border-radius:4px} .head{background:#f7fafe;border-bottom:1px solid #d0d7de;color:#5b6167}
.head b{color:#212529} a{color:#4183c4;text-decoration:none} code{background:#e7edf3;border-radius:4px;padding:.2em .4em}
pre{background:#f5f7fa;border-radius:4px} h3{font-size:1.2em} th,td{border:1px solid #d0d7de} .label{border:1px solid #d0d7de;
border-radius:4px;padding:0 6px;font-size:12px} hr{border:0;background:#d0d7de;height:3px}
""",
}
_COMMON = """
*{box-sizing:border-box} body{margin:0;padding:16px;width:WIDTHpx} .head{padding:8px 16px} .body{padding:16px}
code,pre{font-family:ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;font-size:12px} pre{padding:14px;overflow:hidden;
white-space:pre-wrap;overflow-wrap:anywhere} pre code{background:none;padding:0} p,ul,pre,table,details{margin:0 0 14px}
h3{margin:20px 0 12px;font-weight:600;line-height:1.25} li{margin:.25em 0;overflow-wrap:anywhere} ul{padding-left:2em}
table{border-collapse:collapse} th,td{padding:6px 13px;text-align:left} hr{margin:20px 0}
.body>:last-child{margin-bottom:0} summary{cursor:pointer}
"""


def document(sample: Sample, style: str) -> str:
    """The comment as a page of a forge shows it."""
    body = MarkdownIt("gfm-like", {"linkify": False, "html": True, "breaks": True}).render(sample.text)
    css = _COMMON.replace("WIDTH", str(_WIDTH)) + _STYLES[style]
    return (
        f"<!doctype html><meta charset=utf-8><title>{html.escape(sample.title)}</title><style>{css}</style>"
        f"<div class=box><div class=head><b>gitops-bot</b> commented <span class=label>bot</span></div>"
        f"<div class=body>{body}</div></div><script>document.title=document.documentElement.offsetHeight</script>"
    )


def _chromium(*arguments: str) -> str:
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def draw(folder: Path, style: str = "github") -> None:
    """Draw each sample into a folder."""
    with tempfile.TemporaryDirectory() as place:
        for sample in SAMPLES:
            page, picture = Path(place) / "page.html", folder / f"comment-{sample.name}.png"
            page.write_text(document(sample, style), "utf-8")
            found = re.search(
                r"<title>(\d+)</title>", _chromium(f"--window-size={_WIDTH},100", "--dump-dom", page.as_uri())
            )
            assert found is not None
            size = f"--window-size={_WIDTH},{found[1]}"
            _chromium(size, f"--force-device-scale-factor={_SCALE}", f"--screenshot={picture}", page.as_uri())
            subprocess.run(["pngquant", "--force", "--speed", "1", "--ext", ".png", "64", str(picture)], check=True)


def digests() -> dict[str, str]:
    """The digest of the text that each picture shows."""
    return {each.name: _hex(each.text) for each in SAMPLES}


def main(words: list[str]) -> None:
    """Write the examples, or draw the pictures: into `docs/pictures`, or as another forge shows them into a folder."""
    if words == ["pictures"]:
        draw(PICTURES)
        DIGESTS.write_text(json.dumps(digests(), indent=2) + "\n", "utf-8")
    elif words[:1] == ["look"]:
        draw(Path(words[2]), words[1])
    else:
        write_page(PAGE, examples(read_page(PAGE)))


if __name__ == "__main__":
    main(sys.argv[1:])
