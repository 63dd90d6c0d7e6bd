"""The log of a server: its two forms, and a reader that stands still."""

from __future__ import annotations

import io
import json
import logging
import threading

from gitops.serving.access import DECISIONS
from gitops.serving.logs import in_background, make_log

FORM = {"event": "request", "status": 200, "graph": None, "path": "a\nb"}


class Standing(io.StringIO):
    """A stream whose reader takes nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.released = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        assert self.released.wait(30)
        return super().write(text)


def test_a_record_is_a_line_for_people_or_a_document():
    text, documents = io.StringIO(), io.StringIO()
    make_log(text, logging.INFO, as_json=False).info("request", extra={"form": FORM})
    log = make_log(documents, logging.INFO, as_json=True)
    log.info("request", extra={"form": FORM})
    log.debug("left out")
    DECISIONS.info("decision", extra={"form": {"event": "decision", "allowed": True}})
    log.warning("a text")
    (line,) = text.getvalue().splitlines()
    assert line.split(" ", 1)[1].split() == ["INFO", "request", "status=200", "path=a\\nb"]
    found = [json.loads(each) for each in documents.getvalue().splitlines()]
    assert [each.pop("at")[-1] for each in found] == ["Z"] * 3
    assert found == [
        {"level": "info", **FORM},
        {"level": "info", "event": "decision", "allowed": True},
        {"level": "warning", "text": "a text"},
    ]


def test_records_do_not_wait_for_a_reader_that_stands_still():
    stream = Standing()
    log = make_log(stream, logging.INFO, as_json=True)
    with in_background(log, most=3):
        log.info("first")
        assert stream.entered.wait(30)
        for number in range(8):
            log.info("number %s", number)
        stream.released.set()
    texts = [json.loads(each)["text"] for each in stream.getvalue().splitlines()]
    missing = "5 record(s) are missing here: the log was not read in time"
    assert texts == ["first", missing, "number 0", "number 1", "number 2"]
    log.info("directly")
    assert "directly" in stream.getvalue()
