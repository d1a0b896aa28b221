"""The proxies of a fleet with TLS between them, and the rounds in which a fleet in service comes to it."""

import asyncio
import subprocess

import pytest

from harness.certificates import client_context
from harness.cql import Connection
from harness.proxy import binary
from harness.waits import until

LOCKS = 40  # names enough for each proxy of two to own some
OWNER = "test"


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


def test_a_member_that_is_not_trusted_is_named(start, fleet, authority, stranger):
    context = client_context(authority.ca)
    member = start("required", *options(fleet, authority), pair=authority.member())
    other = start("required", *options(fleet, authority), pair=stranger.member(), client=client_context(stranger.ca))
    until(lambda: attempted(member, context), "a lock of the other proxy was asked for", told=member.log_tail)
    member.wait_until_it_says("TLS with a server failed", other.listen, "the CA of the peer's certificate is unknown")


def attempted(member, context) -> bool:
    try:
        asyncio.run(take(member, context, "refused"))
    except Exception:  # the other proxy owns some of the locks
        pass
    return member.says("TLS with a server failed")
