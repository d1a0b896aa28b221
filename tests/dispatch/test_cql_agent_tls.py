"""TLS between a proxy and the agent on its node's host: what it carries, and what the proxy does when it trusts the agent no more."""

import signal
import subprocess

import pytest

from harness import hosts
from harness.certificates import Authority, place
from harness.moved_ring import Ring
from harness.proxy import binary
from harness.relay import expect, steady

WHY_NOT = hosts.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "nothing is missing")

MIB = 1 << 20
SIZES = [MIB, 100_000, 3 * MIB]
HANDSHAKES = "shunt_outgoing_tls_handshakes_total"


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    return [Authority(tmp_path_factory.mktemp("certificates"), name) for name in ("authority", "stranger")]


def of_agent(authority: Authority, clients: Authority, address: str = None) -> list:
    pair = authority.server("agent", [f"IP:{address or hosts.address('backend0')}"])
    return ["--tls-certificate", pair.certificate, "--tls-key", pair.key, "--tls-client-ca", clients.ca]


def of_proxy(authority: Authority, trusted) -> list:
    pair = authority.client("proxy")
    return ["--handover-tls", "on", "--handover-tls-ca", trusted, "--handover-tls-certificate", pair.certificate,
            "--handover-tls-key", pair.key]


@pytest.fixture(scope="module")
def ring(tmp_path_factory, authorities):
    authority, _ = authorities
    directory = tmp_path_factory.mktemp("cql")
    trusted = directory / "trusted.crt"
    place(authority.ca.read_bytes(), trusted)
    with Ring(directory, agent_options=of_agent(authority, authority), proxy_options=of_proxy(authority, trusted)) as ring:
        ring.trusted = trusted
        yield ring


def handshakes(ring, result: str) -> int:
    return ring.counted(HANDSHAKES, f'use="agents",result="{result}"')


def replace_agent(ring, options: list) -> None:
    agent = ring.processes.pop("agent")
    agent.kill()
    agent.wait(60)
    ring.agent_options = options
    ring.start_agent()


def wait_for_agent(ring) -> None:
    ring.wait("the agent is back", lambda: ring.counted("shunt_handover_agents", 'core="0"') == 1)


@pytest.mark.parametrize("version, compression", [(4, "off"), (5, "on")])
@steady
def test_answers_are_handed_over_by_an_agent_with_tls(ring, version, compression):
    before = ring.sent_directly()
    assert ring.asked(version, compression, SIZES, 1) == len(SIZES) * 22
    expect(ring.sent_directly() > before, ring.logs())
    # The control connection, and the links that the agent has had.
    expect(handshakes(ring, "ok") + handshakes(ring, "resumed") > 1, ring.logs())


# Agents that the proxy must not trust, or that do not trust the proxy, and what its log says.
WRONG = {
    "of another authority": (lambda own, other: of_agent(other, own), "the CA of the peer's certificate is unknown"),
    "of another name": (lambda own, _: of_agent(own, own, "192.0.2.1"), "the peer's certificate is for another name"),
    "in clear text": (lambda *_: [], "the peer does not speak TLS"),
    "that does not trust the proxy": (lambda own, other: of_agent(own, other), "the peer does not know the CA of our certificate"),
}


@pytest.mark.parametrize("kind", WRONG)
@steady
def test_an_agent_that_is_wrong_is_passed_by(ring, authorities, kind):
    (options, words), failed, own = WRONG[kind], handshakes(ring, "failed"), ring.agent_options
    try:
        replace_agent(ring, options(*authorities))
        ring.wait("the proxy says why", lambda: handshakes(ring, "failed") > failed and words in ring.log("proxy"))
        before = ring.sent_directly()
        ring.asked(4, "off", [MIB], 1)
        assert ring.sent_directly() == before
    finally:
        replace_agent(ring, own)
    wait_for_agent(ring)


@steady
def test_another_authority_takes_over_without_a_restart(ring, authorities):
    authority, stranger = authorities
    replace_agent(ring, of_agent(stranger, authority))
    failed = handshakes(ring, "failed")
    ring.wait("the proxy does not trust the agent", lambda: handshakes(ring, "failed") > failed)
    place(authority.ca.read_bytes() + stranger.ca.read_bytes(), ring.trusted)
    ring.processes["proxy"].send_signal(signal.SIGHUP)
    wait_for_agent(ring)
    before = ring.sent_directly()
    ring.asked(4, "off", [MIB], 1)
    expect(ring.sent_directly() > before, ring.logs())


@steady
def test_a_proxy_in_clear_text_says_what_an_agent_with_tls_needs(ring, authorities):
    proxy, own = ring.processes.pop("proxy"), ring.agent_options
    proxy.terminate()
    proxy.wait(120)
    ring.proxy_options = []
    replace_agent(ring, [])
    ring.start_proxy()
    replace_agent(ring, own)
    ring.wait("the proxy says why", lambda: "if it has TLS, set handover_tls = on" in ring.log("proxy"))
    before = ring.sent_directly()
    ring.asked(4, "off", [MIB], 1)
    assert ring.sent_directly() == before


def test_check_reads_the_files(authorities, tmp_path):
    authority, stranger = authorities
    key = tmp_path / "key"
    key.write_text("words that nobody guesses at all")
    key.chmod(0o600)
    proxy = ["--contact-points", "192.0.2.1", "--handover", "auto", "--handover-key-file", key]

    def check(*options) -> tuple:
        done = subprocess.run([binary(), "check", *map(str, [*proxy, *options])], capture_output=True, text=True,
                              timeout=120, check=False)
        return done.returncode, done.stdout + done.stderr

    pair, strange = authority.client("proxy"), stranger.client("proxy")
    tls = ["--handover-tls", "on", "--handover-tls-ca", authority.ca]
    assert check(*tls, "--handover-tls-certificate", pair.certificate, "--handover-tls-key", pair.key)[0] == 0
    for options, words in [
            ([*tls, "--handover-tls-certificate", pair.certificate], "set handover_tls_key"),
            ([*tls, "--handover-tls-certificate", pair.certificate, "--handover-tls-key", strange.key], "the key does not belong to the certificate"),
            (["--handover-tls", "on", "--handover-tls-ca", tmp_path / "nowhere"], "cannot read the file")]:
        code, said = check(*options)
        assert code == 2 and words in said, said
    code, said = check("--handover-tls-ca", authority.ca)
    assert code == 0 and "handover_tls is off, so these have no effect: handover_tls_ca" in said, said
