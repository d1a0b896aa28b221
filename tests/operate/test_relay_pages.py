"""The page for browsers of a dispatcher in front of two nginx, and of a sidecar in front of two Redis, with requests under way."""

import signal
import threading
import urllib.request

import pytest

from harness import browser as browsers
from harness import redis as redis_servers
from harness import relay
from harness.ports import free_port
from harness.redis import Multiget, only_with
from harness.relay import Relay
from harness.waits import DEADLINE_SECONDS

pytestmark = [browsers.only_with_chromium(), only_with(redis_servers.why_not()), only_with(relay.why_not())]

TILE = "[...document.querySelectorAll('#tiles div')].find((tile) => tile.innerText.startsWith('{}')).lastChild.textContent"
TITLES = "[...document.querySelectorAll('#heading th')].map((cell) => cell.textContent.split(' ▲')[0].split(' ▼')[0])"
COLUMN = "(() => {{ const titles = " + TITLES + """;
  return [...document.querySelectorAll('#rows tr')].map((row) => row.children[titles.indexOf('{}')].textContent);
}})()"""


class Load:
    """Sends requests from a thread of its own until it is left. An exception of the thread fails the test."""

    def __init__(self, send):
        self.send, self.ended, self.fault = send, threading.Event(), None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            while not self.ended.wait(0.01):
                self.send()
        except BaseException as fault:
            self.fault = fault

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join(DEADLINE_SECONDS)
        if self.fault:
            raise self.fault


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browsers.Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


def opened(browser, admin: str):
    """Opens the page, and waits until it has a rate and a latency, also in its curves."""
    browser.leave()
    browser.open(f"http://{admin}/")
    browser.until("document.querySelectorAll('#tiles dd').length === 8", "the page shows the process")
    for tile in ("p50 ms", "p99 ms"):
        browser.until(f"Number({TILE.format(tile)}) > 0", f"{tile} has a value")
    browser.until("[...document.querySelectorAll('svg path')].every((path) => path.getAttribute('d').includes('L'))", "the curves are drawn")


def show(browser, table: str, rows: int):
    browser.run(f"document.querySelector('#nav a[href=\"#{table}\"]').click()")
    browser.until(f"document.getElementById('table').dataset.view === '{table}' && "
                  f"document.querySelectorAll('#rows tr').length === {rows}", f"rows of {table}")


def filtered(browser, text: str, rows: int):
    browser.run(f"(() => {{ const filter = document.getElementById('filter'); filter.value = '{text}'; "
                "filter.dispatchEvent(new Event('input')); })()")
    browser.until(f"document.querySelectorAll('#rows tr').length === {rows}", f"the filter keeps {rows} rows")


def test_a_dispatcher_shows_its_backends(browser, tmp_path):
    admin = f"127.0.0.1:{free_port()}"
    with Relay(tmp_path, dispatch_options=["--admin", admin, "--handover", "off"]) as tier:
        (tier.files / "small").write_bytes(b"x" * 100)

        def get():
            with urllib.request.urlopen(tier.url("/small"), timeout=DEADLINE_SECONDS) as answer:
                assert answer.read() == b"x" * 100

        with Load(get):
            opened(browser, admin)
            assert browser.run(TILE.format("backends up")) == "2 of 2"
            assert browser.run("document.getElementById('alerts').innerText").strip() == "None"
            browser.keep_picture("page-dispatcher", height=560)
            show(browser, "backends", 2)
            addresses = {f"127.0.0.1:{port}" for port in tier.agent_ports}
            assert set(browser.run(COLUMN.format("backend"))) == addresses
            assert set(browser.run(COLUMN.format("state"))) == {"up"}
            browser.until(f"{COLUMN.format('p99 ms')}.some((time) => Number(time) > 0)", "a backend has a latency")
            filtered(browser, str(tier.agent_ports[1]), 1)
            filtered(browser, "", 2)
            show(browser, "hosts", 1)
            assert browser.run(COLUMN.format("client")) == ["127.0.0.1"]
            show(browser, "ways", 1)
            assert browser.run(COLUMN.format("name")) == ["relayed"]
        tier.signal("agent-1", signal.SIGKILL)
        show(browser, "backends", 2)
        browser.until(f"JSON.stringify({COLUMN.format('state')}.sort()) === '[\"down\",\"up\"]'", "the agent is down")
        browser.run("document.querySelector('#nav a').click()")
        lost = f"Backend 127.0.0.1:{tier.agent_ports[1]} cannot be reached"
        browser.until(f"document.getElementById('alerts').innerText.includes('{lost}')", "there is an alert")
    assert browser.told == [], "faults of the page and violations of its policy"


def test_a_sidecar_shows_its_servers(browser, tmp_path):
    import redis

    with Multiget(tmp_path, servers=2, mode="tcp") as tier, redis.Redis(port=tier.port, socket_timeout=DEADLINE_SECONDS) as client:
        keys = [f"key:{number}" for number in range(40)]
        is_killed = threading.Event()

        def ask():
            try:
                client.mget(keys)
            except redis.ResponseError:
                # A server that is killed closes its connections before its parent learns that it has ended.
                assert is_killed.is_set()

        with Load(ask):
            opened(browser, f"127.0.0.1:{tier.admin_port}")
            assert browser.run(TILE.format("servers up")) == "2 of 2" and browser.run(TILE.format("applications")) == "1"
            browser.keep_picture("page-sidecar", height=560)
            show(browser, "servers", 2)
            assert set(browser.run(COLUMN.format("server"))) == {f"127.0.0.1:{port}" for port in tier.server_ports}
            browser.until(f"{COLUMN.format('p99 ms')}.every((time) => Number(time) > 0)", "each server has a latency")
            filtered(browser, str(tier.server_ports[0]), 1)
            filtered(browser, "", 2)
            show(browser, "applications", 1)
            browser.until(f"Number({COLUMN.format('requests')}[0]) > 0", "its commands are counted")
            show(browser, "servers", 2)
            is_killed.set()
            tier.stop("redis-1", signal.SIGKILL)
            browser.until(f"JSON.stringify({COLUMN.format('state')}.sort()) === '[\"down\",\"up\"]'", "the server is down")
            browser.run("document.querySelector('#nav a').click()")
            browser.until("document.getElementById('alerts').innerText.includes('Runbook: ShuntSidecarServerDown')", "the alert has a runbook")
            browser.run("[...document.querySelectorAll('#alerts a')].find((link) => !link.hidden).click()")
            browser.until(f"{COLUMN.format('alert')}[0] === 'ShuntSidecarServerDown'", "the link leads to it")
    assert browser.told == [], "faults of the page and violations of its policy"
