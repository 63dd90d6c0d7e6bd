"""Pages of other sites in a real browser on the machine of an open server: they neither read nor change a graph.

A proxy of the test is the rest of the internet. `evil.test` is a site with a page. `rebind.test` has a page, too; whatever
else is asked there reaches the query server, as after the name was bound to this machine. The browser itself asks 127.0.0.1 and
localhost.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import urlsplit

import pytest

from gitops.serving.http import app, tools
from gitops.serving.http.call import Call
from tests.support.query_server import generation, running, served, town_graph

_CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(_CHROMIUM is None, reason="needs a browser: apt install chromium")

_HELP = """
<script>
const found = {};
const TEXT = {"Content-Type": "text/plain"}, JSON_TYPE = {"Content-Type": "application/json"};
const town = key => JSON.stringify({params: {key, size: 1}});
const tool = key => JSON.stringify(
  {jsonrpc: "2.0", id: 1, method: "tools/call", params: {name: "add_town", arguments: {key, size: 1}}});
async function attempt(name, url, options) {
  try {
    const answer = await fetch(url, options);
    found[name] = answer.type === "opaque" ? "opaque" : [answer.status, await answer.text()];
  } catch (error) { found[name] = "blocked"; }
}
function posted(action, name, value) {
  return new Promise(done => {
    const frame = document.createElement("iframe");
    frame.name = "frame" + Math.random();  // set before the frame is in the page, or Chromium does not find the target
    document.body.appendChild(frame);
    const form = document.body.appendChild(document.createElement("form"));
    Object.assign(form, {method: "post", enctype: "text/plain", action, target: frame.name});
    Object.assign(form.appendChild(document.createElement("input")), {type: "hidden", name, value});
    frame.onload = () => done();
    form.submit();
  });
}
function show() { fetch("/found", {method: "POST", body: JSON.stringify(found)}); }
</script>
"""
_EVIL = """
<script>
(async () => {
  for (const host of ["127.0.0.1", "localhost"]) {
    const at = `http://${host}:PORT/graphs/towns/`, tag = host[0];
    await attempt(`read ${tag}`, at + "queries/towns");
    await attempt(`read without a preflight ${tag}`, at + "queries/towns", {mode: "no-cors"});
    await attempt(`export ${tag}`, at + "export", {method: "POST", headers: TEXT});
    const send = {method: "POST", mode: "no-cors", headers: TEXT};
    await attempt(`simple ${tag}`, at + "queries/add_town", {...send, body: town(`simple-${tag}`)});
    await attempt(`typeless ${tag}`, at + "queries/add_town", {...send, headers: {}, body: new Blob([town(`typeless-${tag}`)])});
    await attempt(`json ${tag}`, at + "queries/add_town", {method: "POST", headers: JSON_TYPE, body: town(`json-${tag}`)});
    await attempt(`tool ${tag}`, at + "mcp", {...send, body: tool(`tool-${tag}`)});
    const line = JSON.stringify({type: "Town", data: {key: `load-${tag}`}});
    await attempt(`load ${tag}`, at + "load/ndjson", {...send, body: line});
    // What sendBeacon sends, with an answer to wait for.
    const beacon = {...send, keepalive: true, credentials: "include", body: town(`beacon-${tag}`)};
    await attempt(`beacon ${tag}`, at + "queries/add_town", beacon);
    await posted(at + "queries/add_town", `{"params": {"key": "form-${tag}`, `", "size": 1}}`);
  }
  show();
})();
</script>
"""
_REBIND = """
<script>
(async () => {
  const at = "/graphs/towns/", accept = {...JSON_TYPE, Accept: "application/json, text/event-stream"};
  await attempt("read", at + "queries/towns");
  await attempt("health", "/healthz");
  await attempt("write", at + "queries/add_town", {method: "POST", headers: JSON_TYPE, body: town("rebound")});
  await attempt("tool", at + "mcp", {method: "POST", headers: accept, body: tool("rebound-tool")});
  await attempt("delete", at + "branches/nothing", {method: "DELETE"});
  show();
})();
</script>
"""


@contextmanager
def internet(port: int) -> Iterator[tuple[int, Queue[Any]]]:
    """The proxy, for a query server on `port`; gives its own port, and what pages report at their end."""
    reports = Queue[Any]()

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            place = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if place.path == "/page":
                page = {"evil.test": _EVIL, "rebind.test": _REBIND}[place.hostname or ""]
                self._send(200, "text/html", (_HELP + page.replace("PORT", str(port))).encode())
            elif place.path == "/found":
                self._send(204, "text/plain", b"")
                reports.put(json.loads(body))
            elif place.hostname == "rebind.test":
                kept = {name: value for name, value in self.headers.items() if not name.lower().startswith("proxy-")}
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                connection.request(self.command, place.path, body or None, kept)
                answer = connection.getresponse()
                self._send(answer.status, answer.headers.get("Content-Type", ""), answer.read())
                connection.close()
            else:
                self._send(404, "text/plain", b"")

        do_GET = do_POST = do_DELETE = do_OPTIONS = do_CONNECT = _answer  # noqa: N815

        def _send(self, status: int, kind: str, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], reports
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


def visited(address: str, internet: tuple[int, Queue[Any]], profile: Path) -> dict[str, Any]:
    """What the page at an address reports."""
    proxy, reports = internet
    words = [
        _CHROMIUM or "",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-dev-shm-usage",
    ]
    words += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}"]
    # What newer browsers forbid by themselves is permitted: others do not.
    words += ["--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests,HttpsUpgrades"]
    words += [f"--proxy-server=http://127.0.0.1:{proxy}", "--remote-debugging-port=0", address]
    browser = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        found: dict[str, Any] = reports.get(timeout=120)  # only a hung browser reaches this limit
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()
    return found


@pytest.mark.parametrize("door", ["closed", "open"])
def test_a_page_of_another_site_neither_reads_nor_changes_a_graph(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the door open, the same pages get through: they would notice if one of the checks were missing."""
    if door == "open":
        monkeypatch.setattr(app, "refuse_other_sites", lambda _scope, **_given: None)
        monkeypatch.setattr(tools, "refuse_other_sites", lambda _scope, **_given: None)
        monkeypatch.setattr(Call, "require_media_type", lambda _call, _expected: None)
    with running(generation(served(town_graph(tmp_path)))) as server, internet(server.port) as net:
        evil = visited("http://evil.test/page", net, tmp_path / "a")
        rebound = visited(f"http://rebind.test:{server.port}/page", net, tmp_path / "b")
        rows = server.ask("GET", "/graphs/towns/queries/towns").json()["rows"]
    made = {row["t.key"] for row in rows} - {"a", "b", "c"}
    # The browser itself keeps answers from a page of another site, and sends no JSON for it.
    assert {name.rpartition(" ")[0]: found for name, found in evil.items()} == {
        **dict.fromkeys(("read", "export", "json"), "blocked"),
        **dict.fromkeys(("read without a preflight", "simple", "typeless", "tool", "load", "beacon"), "opaque"),
    }
    if door == "closed":
        assert made == set()
        assert {name: status for name, (status, _) in rebound.items()} == dict.fromkeys(rebound, 421)
        assert not any("Ash" in text or "t.key" in text for _, text in rebound.values())
        return
    # No `tool`: the MCP library itself refuses a call that is not sent as JSON.
    sent = {f"{name}-{host}" for name in ("simple", "typeless", "load", "beacon") for host in "1l"}
    assert made == sent | {"form-1=", "form-l=", "rebound", "rebound-tool"}
    assert rebound["read"][0] == 200
    assert "t.key" in rebound["read"][1]
