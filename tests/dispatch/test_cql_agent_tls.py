"""TLS between a proxy and the agent on its node's host: what it carries, and what the proxy does when it trusts the agent no more."""

import pytest

from harness import hosts
from harness.certificates import Authority
from harness.moved_ring import Ring
from harness.relay import expect, steady

WHY_NOT = hosts.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "nothing is missing")

MIB = 1 << 20
SIZES = [MIB, 100_000, 3 * MIB]
HANDSHAKES = "shunt_outgoing_tls_handshakes_total"


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    return [Authority(tmp_path_factory.mktemp("certificates"), name) for name in ("authority", "stranger")]


def of_agent(authority: Authority, clients: Authority) -> list:
    pair = authority.server("agent", [f"IP:{hosts.address('backend0')}"])
    return ["--tls-certificate", pair.certificate, "--tls-key", pair.key, "--tls-client-ca", clients.ca]


@pytest.fixture(scope="module")
def ring(tmp_path_factory, authorities):
    authority, _ = authorities
    pair = authority.client("proxy")
    options = ["--handover-tls", "on", "--handover-tls-ca", authority.ca, "--handover-tls-certificate", pair.certificate,
               "--handover-tls-key", pair.key]
    with Ring(tmp_path_factory.mktemp("cql"), agent_options=of_agent(authority, authority), proxy_options=options) as ring:
        yield ring


def handshakes(ring, result: str) -> int:
    return ring.counted(HANDSHAKES, f'use="agents",result="{result}"')


@pytest.mark.parametrize("version, compression", [(4, "off"), (5, "on")])
@steady
def test_answers_are_handed_over_by_an_agent_with_tls(ring, version, compression):
    before = ring.sent_directly()
    assert ring.asked(version, compression, SIZES, 1) == len(SIZES) * 22
    expect(ring.sent_directly() > before, ring.logs())
    # The control connection, and the links that the agent has had.
    expect(handshakes(ring, "ok") + handshakes(ring, "resumed") > 1, ring.logs())


@steady
def test_an_agent_of_another_authority_is_passed_by(ring, authorities):
    authority, stranger = authorities
    ring.processes.pop("agent").kill()
    failed, own = handshakes(ring, "failed"), ring.agent_options
    try:
        ring.agent_options = of_agent(stranger, authority)
        ring.start_agent()
        ring.wait("the proxy trusts the agent no more", lambda: handshakes(ring, "failed") > failed)
        before = ring.sent_directly()
        ring.asked(4, "off", [MIB], 1)
        assert ring.sent_directly() == before
        assert "the CA of the peer's certificate is unknown" in ring.log("proxy")
    finally:
        ring.processes.pop("agent").kill()
        ring.agent_options = own
        ring.start_agent()
    ring.wait("the agent is back", lambda: ring.counted("shunt_handover_agents", 'core="0"') == 1)
