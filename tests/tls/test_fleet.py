"""The proxies of a fleet with TLS between them, and the rounds in which a fleet in service comes to it."""

import asyncio
import struct
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.certificates import client_context, place
from harness.cql import Connection, CqlError
from harness.ports import free_port
from harness.proxy import binary
from harness.tickets import resumed, ticket_key
from harness.waits import DEADLINE_SECONDS, until

LOCKS = 40  # names enough for each proxy of two to own some
OWNER = "test"
CLIENTS = 3


@pytest.fixture(scope="module")
def fleet(node) -> str:
    made = subprocess.run([binary(), "fleet", "init", "--contact-points", node.contact, "--name", "tls", "--replicas", "1"],
                          capture_output=True, text=True, timeout=120, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return "tls"


def options(fleet: str, authority=None) -> list:
    secured = ["--fleet-tls", "on", "--fleet-tls-ca", str(authority.ca)] if authority else []
    return ["--fleet", fleet, "--fleet-replicas-min", "1", *secured]


async def take(proxy, context, prefix: str) -> bool:
    """Takes locks of all shards through one proxy; whether all were granted."""
    connection = await Connection.open(proxy.host, proxy.port, tls=context)
    try:
        for number in range(LOCKS):
            (row,) = await connection.query(f"INSERT INTO shunt.locks (name, owner) VALUES ('{prefix}-{number}', '{OWNER}') "
                                            "IF NOT EXISTS USING TTL 20")
            if not row["[applied]"] and row["owner"] != OWNER:
                return False
        return True
    finally:
        connection.close()


def serves_all(proxy, context, prefix: str) -> None:
    """Until the proxies know each other and have their shares, some requests fail. The owner may take its lock again."""
    def attempt() -> bool:
        try:
            return asyncio.run(take(proxy, context, prefix))
        except Exception:  # whatever it is, the next attempt shows whether it lasts
            return False
    until(attempt, f"{proxy.listen} grants locks of every proxy", told=proxy.log_tail)


def test_locks_over_http_have_tls(start, fleet, authority, application):
    pair, port = authority.server(), free_port()
    files = ["--locks-http-tls-certificate", str(pair.certificate), "--locks-http-tls-key", str(pair.key)]
    proxy = start("optional", *options(fleet, authority), "--locks-http", f"127.0.0.1:{port}", *files, "--locks-http-tls-client-ca",
                  str(authority.ca), pair=authority.member())
    shown = ["--cert", str(application.certificate), "--key", str(application.key)]

    def curl(method: str, owner: str, *options, scheme: str = "https", parameters: str = "") -> list:
        address = f"{scheme}://127.0.0.1:{port}/v1/locks/over-tls" + (f"?owner={owner}{parameters}" if owner else "")
        return ["curl", "-s", "-S", "--max-time", "120", "-w", "\n%{http_code}", "--cacert", str(authority.ca), "-X", method, *options, address]

    def run(command: list) -> tuple:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, int(done.stdout.rpartition("\n")[2]), done.stdout + done.stderr

    until(lambda: run(curl("PUT", "a", *shown, parameters="&ttl=60"))[:2] == (0, 200), "the lock is granted", told=proxy.log_tail)
    assert run(curl("PUT", "b", *shown))[:2] == (0, 409)
    waiting = subprocess.Popen(curl("PUT", "b", *shown, parameters="&ttl=60&wait=50"), stdout=subprocess.PIPE, text=True)
    until(lambda: '"waiters":1' in run(curl("GET", "", *shown))[2], "b waits", told=proxy.log_tail)
    assert run(curl("DELETE", "a", *shown))[:2] == (0, 200)
    assert waiting.communicate(timeout=120)[0].endswith("200")
    for own in ([], ["--cert", str(pair.certificate), "--key", str(pair.key)]):
        code, status, _ = run(curl("GET", "", *own))
        assert code != 0 and status == 0
    code, status, text = run(curl("GET", "", scheme="http"))
    assert (code, status) == (0, 400) and "requires TLS" in text
    handshakes = "shunt_http_tls_handshakes_total"
    assert proxy.metric(handshakes, use="locks_http", result="failed") >= 1 and proxy.metric(handshakes, use="locks_http", result="clear_text") == 1
    proxy.stop()


def test_a_fleet_comes_to_tls_in_rounds(start, fleet, authority, application, clients_ca):
    context = client_context(authority.ca, application)
    first = start("optional", *clients_ca, *options(fleet), pair=authority.member())
    second = start("optional", *clients_ca, *options(fleet, authority), pair=authority.member())
    for proxy in (first, second):
        serves_all(proxy, context, f"mixed-{proxy.port}")
    # Beside the connections of this test, which `serves_all` made.
    until(lambda: any(group["tls"] for group in first.client_groups()), "the second asks the first with TLS", told=first.log_tail)
    first.stop()
    third = start("required", *clients_ca, *options(fleet, authority), pair=authority.member(), client=context)
    for proxy in (second, third):
        serves_all(proxy, context, f"secured-{proxy.port}")
    assert third.metric("shunt_tls_handshakes_total", result="clear_text") == 0
    assert third.metric("shunt_certificate_expires_seconds", use="fleet") > 0


def test_commands_take_and_show_locks(start, fleet, authority, application, clients_ca):
    """`shunt lock` and `shunt locks` show the proxy a certificate, and have no way in without one."""
    context = client_context(authority.ca, application)
    proxy = start("required", *clients_ca, *options(fleet, authority), pair=authority.member(), client=context)
    serves_all(proxy, context, "before-commands")
    trusted = ["--contact-points", proxy.listen, "--tls-ca", authority.ca]
    own = ["--tls-certificate", application.certificate, "--tls-key", application.key]

    def run(*command) -> tuple:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=2 * DEADLINE_SECONDS, check=False)
        return done.returncode, done.stdout + done.stderr

    show = [binary(), "locks", *trusted]
    # A list misses the locks of a proxy that is late, and those whose owner changes, as it does after a proxy has come.
    until_listed = f"""for turn in $(seq {10 * DEADLINE_SECONDS}); do said=$("$@") && case $said in *job-over-tls*) exit 0;; esac; sleep 0.1; done
        echo "$said"; exit 1"""
    code, said = run(binary(), "lock", *trusted, *own, "--wait", "60", "job-over-tls", "--", "sh", "-c", until_listed, "sh", *show, *own,
                     "--limit", "1000")
    assert code == 0, said
    for command in (show, [binary(), "lock", *trusted, "job-over-tls", "--", "true"]):
        code, said = run(*command)
        assert code != 0 and "requires a certificate" in said, said
    proxy.stop()


def visit(members: list, context, session) -> tuple:
    """Connects to a member and asks it, or the next one if that restarts: whether the session was resumed, and the next one."""
    failures = []
    for proxy in members:
        try:
            return resumed(proxy, context, session)
        except (OSError, struct.error) as failure:
            failures.append(failure)
    raise AssertionError(f"no member serves: {failures}")


def test_a_rolling_restart_fails_no_request_and_clients_resume(start, fleet, authority, application, clients_ca, tmp_path):
    """Members with the same keys of tickets. Each returns with another certificate."""
    keys, context = tmp_path / "keys", client_context(authority.ca, application)
    place(ticket_key(), keys)
    members = [start("required", *clients_ca, *options(fleet, authority), "--tls-ticket-keys", str(keys), pair=authority.member(),
                     client=context) for _ in range(2)]
    for proxy in members:
        serves_all(proxy, context, f"before-{proxy.port}")
    has_ended = threading.Event()

    def client(number: int) -> int:
        """Requests of a client that goes from member to member; each but the first with a resumed session."""
        _, session = visit(members, context, None)
        requests = 0
        while not has_ended.is_set():
            first = (number + requests) % 2
            again, session = visit([members[first], members[1 - first]], context, session)
            assert again, f"request {requests} began a new session"
            requests += 1
        return requests

    with ThreadPoolExecutor(CLIENTS) as threads:
        clients = [threads.submit(client, number) for number in range(CLIENTS)]
        try:
            for proxy in members:
                assert proxy.stop() == 0
                authority.member().install(proxy.directory)
                proxy.start()
                until(lambda: proxy.metric("shunt_tls_handshakes_total", result="resumed") > 0, "clients resume", told=proxy.log_tail)
                for each in members:
                    serves_all(each, context, f"after-{proxy.port}-{each.port}")
        finally:
            has_ended.set()
        assert all(each.result() > 0 for each in clients)
    for proxy in members:
        proxy.stop()


def test_a_member_that_is_not_trusted_is_named(start, fleet, authority, stranger):
    context = client_context(authority.ca)
    member = start("required", *options(fleet, authority), pair=authority.member())
    other = start("required", *options(fleet, authority), pair=stranger.member(), client=client_context(stranger.ca))
    until(lambda: attempted(member, context), "a lock of the other proxy was asked for", told=member.log_tail)
    member.wait_until_it_says("TLS with a server failed", other.listen, "the CA of the peer's certificate is unknown")
    member.stop()
    other.stop()


@pytest.mark.parametrize("refuses", ["member", "other"])
def test_failed_handshakes_are_not_repeated_for_each_request(start, fleet, authority, stranger, refuses):
    """Either the member does not trust the other's certificate, or the other does not trust the member's: of that the member
    learns when its own side of the handshake is over."""
    member = start("required", *options(fleet, authority), pair=authority.member())
    if refuses == "member":
        other = start("required", *options(fleet, authority), pair=stranger.member(), client=client_context(stranger.ca))
    else:
        trusts = ["--tls-client-ca", str(stranger.ca), "--tls-client-auth", "required"]
        other = start("required", *trusts, *options(fleet, authority), pair=authority.member(),
                      client=client_context(authority.ca, stranger.client()))
    context = client_context(authority.ca)
    until(lambda: asyncio.run(refusals(member, context, "first")) > 0 and member.says("TLS with a server failed", other.listen),
          "a lock of the other proxy was asked for", told=member.log_tail)
    handshakes = "shunt_outgoing_tls_handshakes_total"
    failed = member.metric(handshakes, use="fleet", result="failed")
    assert failed > 0
    # A request goes on trying for a second, fifty times.
    assert asyncio.run(refusals(member, context, "then")) > 0
    assert member.metric(handshakes, use="fleet", result="failed") - failed < 10
    member.stop()
    other.stop()


async def refusals(proxy, context, prefix: str) -> int:
    """Asks for many locks at once; the number of refused requests."""
    connection = await Connection.open(proxy.host, proxy.port, tls=context)

    async def ask(number: int) -> int:
        try:
            await connection.query(f"INSERT INTO shunt.locks (name, owner) VALUES ('{prefix}-{number}', '{OWNER}') IF NOT EXISTS USING TTL 20")
        except CqlError:
            return 1
        return 0

    try:
        return sum(await asyncio.gather(*map(ask, range(5 * LOCKS))))
    finally:
        connection.close()


def attempted(member, context) -> bool:
    try:
        asyncio.run(take(member, context, "refused"))
    except Exception:  # the other proxy owns some of the locks
        pass
    return member.says("TLS with a server failed")
