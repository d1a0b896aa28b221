"""The page for browsers of the admin address, in a headless Chromium: what it shows, sorts and filters, and what it closes."""

import base64
import json
import os
import re
import socket
import subprocess

import pytest
from cassandra.cluster import Cluster, NoHostAvailable

from harness import browser as browsers
from harness.driver import UNDISTURBED, named_connection
from harness.embedded import Embedded
from harness.ports import free_port
from harness.proxy import PATIENT_PROXY, Proxy, binary
from harness.waits import until

pytestmark = browsers.only_with_chromium()

HOSTILE = "<img src=x onerror=alert(1)>"
TOKEN = "a-token-of-20-letters"
QUERY = "SELECT release_version FROM system.local"

ROWS = "[...document.querySelectorAll('#rows tr')]"
# The texts of a column in the order of the rows.
COLUMN = """(() => {{
  const titles = [...document.querySelectorAll('#heading th')].map((cell) => cell.textContent.split(' ▲')[0].split(' ▼')[0]);
  return [...document.querySelectorAll('#rows tr')].map((row) => row.children[titles.indexOf('{}')].textContent);
}})()"""


def listens(address: str) -> bool:
    host, port = address.split(":")
    with socket.socket() as tried:
        return tried.connect_ex((host, int(port))) == 0


def connect(proxy, application: str):
    """A driver's cluster and session with the name of an application in STARTUP."""
    cluster = Cluster([proxy.host], port=proxy.port, connection_class=named_connection(application), **UNDISTURBED)
    return cluster, cluster.connect()


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    contact, admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    log = tmp_path_factory.mktemp("node") / "node.log"
    with Embedded("page", contact, ["node", "--listen", contact, "--admin", admin], [contact], log) as node:
        node.admin = admin
        yield node


@pytest.fixture(scope="module")
def proxy(node, tmp_path_factory):
    log = tmp_path_factory.mktemp("proxy") / "proxy.log"
    with Proxy(node.contact, f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", ["--cores", "1", *PATIENT_PROXY], log) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def sessions(proxy):
    """A session of each of two applications."""
    found = [connect(proxy, name) for name in (HOSTILE, "checkout")]
    for _, session in found:
        session.execute(QUERY)
    yield [session for _, session in found]
    for cluster, _ in found:
        cluster.shutdown()


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    """Two nodes with a proxy of their own."""
    contact, admin, port = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", free_port()
    arguments = ["up", "--nodes", "2", "--listen", contact, "--node-port", str(port), "--admin", admin]
    nodes = [f"127.0.0.{number}:{port}" for number in (1, 2)]
    with Embedded("page-ring", contact, arguments, nodes, tmp_path_factory.mktemp("ring") / "up.log") as ring:
        ring.admin = admin
        yield ring


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browsers.Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def page(browser, proxy, sessions):
    """The browser with the page, as it is at first."""
    browser.leave()
    browser.open(f"http://{proxy.admin}/")
    browser.until("document.querySelectorAll('#tiles dd').length === 8", "the page shows the proxy")
    yield browser
    assert browser.told == [], "faults of the page and violations of its policy"


def show(page, table: str) -> None:
    """Opens a table by its link, and waits for rows."""
    page.run(f"document.querySelector('#nav a[href=\"#{table}\"]').click()")
    page.until(f"document.getElementById('table').dataset.view === '{table}' && {ROWS}.length > 0", f"rows of {table}")


def tab_to(page, condition: str) -> None:
    """Moves the focus by the Tab key until it is at an element."""
    for _ in range(60):
        if page.run(f"((element) => {condition})(document.activeElement)"):
            return
        page.press("Tab")
    raise AssertionError(f"no way to {condition} with the Tab key")


def write_filter(page, text: str) -> None:
    page.run("document.getElementById('filter').select()")
    tab_to(page, "element.id === 'filter'")
    page.type(text)


def test_what_the_proxy_does_now(page, proxy, sessions):
    tile = "Number([...document.querySelectorAll('#tiles div')].find((tile) => tile.innerText.startsWith('{}')).lastChild.textContent) || 0"
    page.until(f"({tile.format('clients')}) >= 2", "both clients are counted")

    # A turn of the page later, the rate is that of the queries in between.
    def counted() -> bool:
        sessions[0].execute(QUERY)
        return page.run(tile.format("queries/s")) > 0 and page.run(tile.format("p99 ms")) > 0

    until(counted, "the page has a rate and a latency", told=lambda: page.run("document.body.innerText"))
    page.until("document.querySelector('svg path').getAttribute('d').includes('L')", "the rate is drawn")
    assert page.run("document.getElementById('alerts').innerText").strip() == "None"
    # The proxy keeps the points: a browser that opens the page has the minutes before at once.
    page.open("about:blank")
    page.open(f"http://{proxy.admin}/")
    page.until("document.querySelectorAll('#tiles dd').length === 8", "the page shows the proxy again")
    assert page.run("document.querySelector('svg path').getAttribute('d').includes('L')")
    page.keep_picture("page")


def test_a_hostile_name_is_a_text(page):
    show(page, "clients")
    page.until(f"{COLUMN.format('application')}.includes('{HOSTILE}')", "the name is shown as it is")
    assert page.run("document.images.length") == 0
    # The policy of the page refuses what its script never does.
    with pytest.raises(browsers.Failed, match="TrustedHTML"):
        page.run("document.body.innerHTML = '<img src=x>'")
    page.until("document.querySelector('h1').textContent.startsWith('Shunt proxy')", "the page is still there")
    page.told[:] = [told for told in page.told if "TrustedHTML" not in told]


def test_a_table_is_sorted_by_any_column_and_filtered(page):
    show(page, "clients")
    page.until(f"{ROWS}.length === 2", "two groups of clients")
    tab_to(page, "element.closest('th') && element.textContent === 'application'")
    heading = "document.activeElement.closest('th').getAttribute('aria-sort')"
    for order, rows in (("ascending", [HOSTILE, "checkout"]), ("descending", ["checkout", HOSTILE])):
        page.press("Enter")
        assert page.run(heading) == order
        assert sorted(page.run(COLUMN.format("application"))) == sorted(rows)
        assert page.run(COLUMN.format("application")) == rows
    write_filter(page, "CheckOut")
    assert page.run(COLUMN.format("application")) == ["checkout"]
    assert page.run("document.getElementById('count').textContent") == "1 of 2"
    write_filter(page, "no such client")
    assert page.run(f"{ROWS}.length") == 0


def test_queries_and_options_are_tables(page, sessions):
    show(page, "queries")
    page.until(f"{COLUMN.format('text')}.some((text) => text.includes('release_version'))", "the statement is there")
    show(page, "options")
    write_filter(page, "query_timeout_ms")
    assert page.run(COLUMN.format("value"))[0] == "30000" and page.run(COLUMN.format("source"))[0] == "flag"
    show(page, "nodes")
    page.until(f"{COLUMN.format('state')}.join() === 'up'", "the node is up")


def test_clients_are_closed_without_a_mouse(page, proxy, sessions):
    show(page, "clients")
    write_filter(page, "onerror")
    tab_to(page, "element.textContent === 'Close…'")
    page.press("Enter")
    page.until("document.getElementById('kick').open", "the page asks first")
    told = page.run("document.getElementById('conditions').innerText")
    assert f"application = {HOSTILE}" in told and "address = 127.0.0.1" in told, told
    assert "no role" in told, "clients of all roles would be closed"
    page.press("Escape")
    page.until("!document.getElementById('kick').open", "nothing is closed")
    assert 'shunt_clients_closed_total{reason="operator"} 0\n' in proxy.get("/metrics")[1]
    tab_to(page, "element.textContent === 'Close…'")
    page.press("Enter")
    tab_to(page, "element.id === 'confirm'")
    page.press("Enter")
    outcome = page.until("/closed|error/.test(document.getElementById('outcome').innerText) && document.getElementById('outcome').innerText",
                         "the proxy has answered")
    assert re.fullmatch("closed [1-9] clients?", outcome), outcome
    assert 'shunt_clients_closed_total{reason="operator"} 0\n' not in proxy.get("/metrics")[1]
    assert f'application="{HOSTILE}"' in proxy.log.read_text()

    def answers() -> bool:
        try:
            return bool(sessions[0].execute(QUERY))
        except NoHostAvailable:
            return False

    until(answers, "the driver is back", told=proxy.log_tail)


def test_the_last_node_is_not_drained(page, proxy):
    show(page, "nodes")
    tab_to(page, "element.textContent === 'Drain…'")
    page.press("Enter")
    page.until("document.getElementById('drain').open", "the page asks first")
    tab_to(page, "element.id === 'drain-confirm'")
    page.press("Enter")
    page.until("document.getElementById('drain-outcome').innerText.startsWith('error: this is the last node')", "the proxy refuses")
    page.press("Escape")
    page.until("!document.getElementById('drain').open", "the dialog is closed")
    # The browser reports each answer that is an error, this one too.
    assert [line for line in page.told if "/drain_node" not in line] == []
    page.told.clear()
    assert "shunt_node_drained{" in proxy.get("/metrics")[1] and page.run(COLUMN.format("state")) == ["up"]


def test_connections_have_rows_of_their_own(page, sessions):
    show(page, "connections")
    write_filter(page, "checkout")
    assert page.run(f"{ROWS}.length") > 0 and set(page.run(COLUMN.format("stage"))) == {"READY"}
    show(page, "links")
    assert "ready" in page.run(COLUMN.format("state"))


def test_a_node_is_drained_and_taken_back(browser, ring):
    browser.leave()
    browser.open(f"http://{ring.admin}/#nodes")
    browser.until(f"{ROWS}.length === 2 && {COLUMN.format('state')}.every((state) => state === 'up')", "both nodes are up")
    for button, outcome, states in (("Drain…", "drained; ", ["drained", "up"]), ("Take back…", "taken back", ["up", "up"])):
        tab_to(browser, f"element.textContent === '{button}'")
        browser.press("Enter")
        browser.until("document.getElementById('drain').open", "the page asks first")
        tab_to(browser, "element.id === 'drain-confirm'")
        browser.press("Enter")
        browser.until(f"document.getElementById('drain-outcome').innerText.startsWith('{outcome}')", "the proxy has answered")
        browser.press("Escape")
        browser.until(f"JSON.stringify({COLUMN.format('state')}.sort()) === '{json.dumps(states, separators=(',', ':'))}'", "the table shows it")
    assert browser.told == []


def test_two_applications_have_their_counts_and_statements(browser, ring):
    host, port = ring.contact.rsplit(":", 1)
    clusters = [Cluster([host], port=int(port), connection_class=named_connection(name), **UNDISTURBED) for name in ("checkout", "nightly")]
    try:
        writer, reader = [cluster.connect() for cluster in clusters]
        writer.execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
        writer.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, v text)")
        write = writer.prepare("INSERT INTO shop.orders (id, v) VALUES (?, ?)")
        for number in range(300):
            writer.execute(write, (number, "x"))
            reader.execute(f"SELECT v FROM shop.orders WHERE id = {number}")
        browser.leave()
        browser.open(f"http://{ring.admin}/#clients")
        # The page may still show an answer from before the last queries.
        queries = f"{COLUMN.format('queries')}.map((count) => Number(count.replaceAll(',', '')))"
        counted = f"{COLUMN.format('application')}.some((application, row) => application === name && {queries}[row] >= 300)"
        browser.until(f"['checkout', 'nightly'].every((name) => {counted})", "both have their 300 queries")
        browser.keep_picture("page-clients")
        show(browser, "queries")
        texts = json.dumps(["SELECT v FROM shop.orders WHERE id = ?", "INSERT INTO shop.orders (id, v) VALUES (?, ?)"])
        browser.until(f"{texts}.every((text) => {COLUMN.format('text')}.includes(text))", "both statements are there")
        browser.keep_picture("page-queries")
        assert browser.told == []
    finally:
        for cluster in clusters:
            cluster.shutdown()


def test_the_page_is_dark_where_the_reader_prefers_it(page):
    background = "getComputedStyle(document.documentElement).backgroundColor + getComputedStyle(document.body).color"
    found = {}
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        found[scheme] = [int(number) for number in re.findall(r"\d+", page.run(background))]
        if scheme == "dark":
            page.until("document.querySelector('svg path').getAttribute('d').includes('L')", "the rate is drawn")
            page.keep_picture("page-dark")
    page.prefer("light")
    texts = {scheme: sum(numbers[-3:]) for scheme, numbers in found.items()}
    assert texts["light"] < 3 * 128 < texts["dark"], found


def test_a_token_is_asked_for(browser, node, tmp_path):
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    listen, admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    guarded = Proxy(node.contact, listen, admin, ["--cores", "1", "--admin-token-file", str(token), *PATIENT_PROXY], tmp_path / "proxy.log")
    with guarded:
        browser.open(f"http://{admin}/")
        browser.until("document.activeElement.id === 'token'", "the page asks for a token")
        for text, expected in (("a-wrong-token-of-25-letters", "not accepted"), (TOKEN, "")):
            browser.type(text)
            browser.press("Enter")
            browser.until(f"document.getElementById('login-error').innerText.includes('{expected}')", "the token is judged")
            if expected:
                browser.until("document.activeElement.id === 'token'", "another token can be given")
        browser.until("document.querySelectorAll('#tiles dd').length === 8", "the page shows the proxy")
        assert browser.run("document.getElementById('login').hidden")


def test_other_processes_show_their_status(browser, node):
    browser.open(f"http://{node.admin}/")
    browser.until("document.querySelector('h1').textContent === 'Shunt embedded nodes'", "the page names the process")
    assert node.contact in browser.run("document.getElementById('tree').innerText")
    assert browser.run("document.querySelectorAll('#nav a').length") == 1


@pytest.mark.parametrize("kind, words, table, alert", [
    ("dispatcher", ["dispatch", "--backend", "{peer}", "--key-file", "{key}", "--handover", "off"], "backends",
     "Backend {peer} cannot be reached"),
    ("sidecar", ["multiget", "serve", "--server", "{peer}", "--mode", "tcp"], "servers", "None"),
])
def test_a_dispatcher_and_a_sidecar_have_the_page(browser, tmp_path, kind, words, table, alert):
    """Without their backend or server: test_relay_pages.py has both at work."""
    listen, admin, peer = (f"127.0.0.1:{free_port()}" for _ in range(3))
    key = tmp_path / "key"
    key.write_text(base64.b64encode(os.urandom(32)).decode())
    key.chmod(0o600)
    command = [str(binary()), *(word.format(peer=peer, key=key) for word in words), "--listen", listen, "--admin", admin]
    with open(tmp_path / "log", "wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            def is_there() -> bool:
                assert process.poll() is None, (tmp_path / "log").read_text()
                return listens(admin)

            until(is_there, f"the {kind} has its page", told=lambda: (tmp_path / "log").read_text())
            browser.leave()
            browser.open(f"http://{admin}/")
            browser.until(f"document.querySelector('h1').textContent === 'Shunt {kind}'", "the page names the process")
            expected = alert.format(peer=peer)
            browser.until(f"document.getElementById('alerts').innerText.includes('{expected}')", "the page has the alert")
            show(browser, table)
            assert browser.run("document.querySelector('#rows td').textContent") == peer
            browser.run("document.querySelector('#nav a[href=\"#status\"]').click()")
            browser.until(f"document.getElementById('tree').innerText.includes('{peer}')", "the status is there as a whole")
            assert browser.told == []
        finally:
            process.terminate()


def test_a_node_that_dies_and_a_proxy_that_ends(page, node, proxy):
    node.kill()
    page.until("document.getElementById('state').innerText.startsWith('not ready')", "the page says so")
    page.until("document.getElementById('alerts').innerText.includes('Not ready: no node')", "there is an alert")
    assert page.run("document.querySelector('#nav a').innerText").startswith("Overview (")
    # An alert leads to its runbook, which is a part of the page.
    page.until("document.getElementById('alerts').innerText.includes('Runbook: ShuntRingViewOld')", "the alert has a runbook")
    tab_to(page, "element.textContent === 'Runbook: ShuntRingViewOld'")
    page.press("Enter")
    page.until(f"{ROWS}.length === 1 && {COLUMN.format('alert')}[0] === 'ShuntRingViewOld'", "the runbook shows the alert")
    assert "contact points" in page.run(COLUMN.format("then"))[0]
    page.run("document.querySelector('#nav a').click()")
    page.until("!document.getElementById('overview').hidden", "the overview is there again")
    proxy.kill()
    page.until("document.getElementById('state').innerText.includes('cannot be reached')", "the page shows no old figures as new ones")
    page.until("document.body.classList.contains('stale')", "the figures are marked")
    page.told.clear()
