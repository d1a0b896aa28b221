"""Each command of docs/questions.md against a running proxy: its columns, or its lines, are those that the page shows.

`UPDATE_DOCS=1` writes the outputs of this run onto the page instead. The answers about failed logins need nodes with
passwords: those columns are checked beside the table of the command (`console/views.rs`), and the list itself in
tests/drivers/python/test_authentication.py.
"""

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from cassandra.cluster import Cluster

from harness.driver import UNDISTURBED, named_connection
from harness.embedded import Embedded
from harness.ports import free_port
from harness.proxy import UNDISTURBED_PROXY, Proxy, binary
from harness.waits import DEADLINE_SECONDS, until

PAGE = Path(__file__).parents[2] / "docs" / "questions.md"
# A block of the page: commands, each with its output.
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A table has two spaces between columns, and headings with single ones.
GAP = re.compile(r" {2,}")
FILE = "slow_query_ms = {slow}\ncores = {cores}\nlog_values = \"on\"\n"
# Lines that depend on what has happened, as patterns for what both the page and the run must have.
PATTERNS = {
    "kick": [r"closed 1 client"],
    "reload": [r"applied: (clients_max, )?slow_query_ms", r"needs a restart: cores"],
    "top": [r"ready; version \S+, up \d+ (s|min); nodes up \d+ of \d+", r"clients \d+ \(\d+ paused\), in flight \d+, queries/s \d+, .*"],
}


def questions() -> list:
    """The commands of the page, each with the lines below it."""
    found = []
    for block in BLOCK.findall(PAGE.read_text()):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            else:
                found[-1][1].append(line)
    return found


QUESTIONS = questions()


def words(command: str) -> list:
    return shlex.split(command)[1:]


def name(command: str) -> str:
    return words(command)[0]


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    """Two nodes, and a proxy of a fleet, which has locks."""
    contact, port = f"127.0.0.1:{free_port()}", free_port()
    arguments = ["up", "--nodes", "2", "--listen", contact, "--node-port", str(port), "--admin", "off"]
    nodes = [f"127.0.0.{number}:{port}" for number in (1, 2)]
    with Embedded("questions", contact, arguments, nodes, tmp_path_factory.mktemp("ring") / "up.log") as ring:
        yield ring


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("proxy") / "shunt.toml"


@pytest.fixture(scope="module")
def proxy(ring, file):
    file.write_text(FILE.format(slow=1, cores=1))
    options = ["--config", str(file), "--hot-keys-sample", "1", *UNDISTURBED_PROXY]
    with Proxy(",".join(ring.nodes), f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", options, file.with_suffix(".log")) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def sessions(proxy):
    """Two applications that have sent queries, one of them slow ones."""
    clusters = [Cluster([proxy.host], port=proxy.port, connection_class=named_connection(application), **UNDISTURBED)
                for application in ("checkout", "nightly")]
    found = [cluster.connect() for cluster in clusters]
    found[0].execute("CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    found[0].execute("CREATE TABLE shop.orders (id int PRIMARY KEY, v text)")
    write = found[0].prepare("INSERT INTO shop.orders (id, v) VALUES (?, ?)")
    read = found[1].prepare("SELECT v FROM shop.orders WHERE id = ?")
    for number in range(200):
        found[0].execute(write, (number, "x" * 100))
        found[1].execute(read, (number % 3,))
    found[1].execute("SELECT count(*) FROM shop.orders WHERE id > 3 ALLOW FILTERING")
    yield found
    for cluster in clusters:
        cluster.shutdown()


@pytest.fixture(scope="module")
def lock(ring):
    """A lock with a holder and a waiter."""
    command = [str(binary()), "lock", "nightly-report", "--contact-points", ring.contact]
    holders = [subprocess.Popen([*command, *more, "--", "sleep", "600"], start_new_session=True) for more in ([], ["--wait", "600s"])]
    yield
    for holder in holders:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait(60)


@pytest.fixture(scope="module")
def slow(ring, proxy, sessions):
    """A query that took long, because its node stood still."""
    def recorded() -> bool:
        ring.process.send_signal(signal.SIGSTOP)
        try:
            answer = sessions[1].execute_async("SELECT v FROM shop.orders WHERE id = 2")
            until(lambda: '"in_flight":1' in proxy.get("/status")[1].replace(" ", ""), "the query is with the node", told=proxy.log_tail)
        finally:
            ring.process.send_signal(signal.SIGCONT)
        answer.result()
        return "FROM shop.orders" in proxy.get("/slow_queries")[1]

    until(recorded, "a slow query is listed", told=proxy.log_tail)


def run(command: list) -> list:
    done = subprocess.run([str(binary()), *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_SECONDS,
                          env={**os.environ, "RUST_BACKTRACE": "0"})
    assert done.returncode == 0, done
    return done.stdout.splitlines()


def columns(lines: list, first: str) -> list:
    """The headings of the table whose first column is `first`; none if there is no such table."""
    heading = next((line for line in lines if GAP.split(line)[0] == first), "")
    return GAP.split(heading) if heading else []


def queue(command: list) -> list:
    """The lines about a lock, once it has a holder and a waiter."""
    lines = run(command)
    return lines if len(lines) == 3 else []


def answer(command: str, proxy, ring, file) -> tuple[str, list]:
    """The command as it is given, and what it prints about this proxy and this fleet."""
    given, admin = words(command), ["--admin", proxy.admin]
    if name(command) == "locks":
        return command, until(lambda: queue([*given, "--contact-points", ring.contact]), "the lock has a holder and a waiter")
    if name(command) == "kick":
        first = run(["connections", "--limit", "1", "--json", *admin])[0]
        given = ["kick", "--id", json.loads(first)["id"]]
    if name(command) == "config":
        # One option waits for a restart, and one is set by a request, which a reload would undo.
        file.write_text(FILE.format(slow=1, cores=2))
        run(["reload", *admin])
        run(["config", "set", "clients_max", "20000", *admin])
    if name(command) == "reload":
        file.write_text(FILE.format(slow=500, cores=2))
    return shlex.join(["shunt", *given]), run([*given, *admin])


def test_the_page_has_ten_questions():
    assert PAGE.read_text().count("\n## ") == 10
    assert {name(command) for command, _ in QUESTIONS} >= {"clients", "kick", "slow", "nodes", "hot", "config", "reload", "failed-logins",
                                                           "locks", "top"}


def test_each_command_answers_as_the_page_shows(proxy, ring, sessions, slow, lock, file):
    faults, answers = [], {}
    for command, shown in QUESTIONS:
        if name(command) == "failed-logins":
            continue
        done, lines = answer(command, proxy, ring, file)
        answers[command] = [f"$ {done}", *lines]
        patterns = PATTERNS.get(name(command), [])
        for given, where in ((shown, "the page"), (lines, "the proxy")):
            for pattern, line in zip(patterns, given + [""] * len(patterns)):
                if not re.fullmatch(pattern, line):
                    faults.append(f"{command}: {where} has {line!r} for {pattern!r}")
        if name(command) in ("kick", "reload"):
            continue
        first = {"nodes": "node", "slow": "ended", "queries": "count", "hot": "table", "config": "option", "locks": "kept",
                 "connections": "id"}.get(name(command), "role")
        # Without passwords there are no roles, and a table leaves out a column without values.
        of_page, of_proxy = columns(shown, first), columns(lines, first)
        if of_page != of_proxy or not of_proxy:
            faults.append(f"{command}: the page has {of_page}, the proxy {of_proxy}")
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(BLOCK.sub(lambda block: updated(block, answers), PAGE.read_text()))
    else:
        assert not faults, "\n".join(faults)


def updated(block, answers: dict) -> str:
    """A block with the outputs of this run, as far as there are any."""
    commands = [line.removeprefix("$ ") for line in block[1].splitlines() if line.startswith("$ ")]
    if not all(command in answers for command in commands):
        return block[0]
    lines = [line for command in commands for line in answers[command]]
    return "\n".join(["```console", *lines, "```"])
