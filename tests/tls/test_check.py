"""`shunt check` with options of TLS."""

import subprocess
from datetime import datetime, timedelta, timezone

import pytest

from harness.certificates import EXPIRED, Authority
from harness.proxy import binary

UNUSABLE = 2


def check(*options) -> tuple:
    """The exit code, and everything that it says."""
    done = subprocess.run([binary(), "check", "--contact-points", "192.0.2.1", *map(str, options)], capture_output=True, text=True,
                          timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def files(pair, key=None) -> list:
    return ["--tls", "required", "--tls-certificate", pair.certificate, "--tls-key", key or pair.key]


def test_usable_files(authority):
    assert check(*files(authority.server()), "--tls-client-ca", authority.ca, "--tls-client-auth", "required") == (0, "valid\n")


def test_a_certificate_that_expires_soon(authority):
    end = datetime.now(timezone.utc) + timedelta(days=5, hours=12)
    code, said = check(*files(authority.server("soon", end=end.strftime("%Y%m%d%H%M%SZ"))))
    assert code == 0 and "warning: tls_certificate" in said and "CN=soon expires in 5 days" in said, said


def test_a_key_that_everyone_can_read(authority, start):
    pair, words = authority.server(), "other users have access (mode 644); run chmod 600"
    pair.key.chmod(0o644)
    code, said = check(*files(pair))
    assert code == 0 and f"warning: tls_key {pair.key}: {words}" in said, said
    proxy = start("required", pair=pair)
    (proxy.directory / "tls.key").chmod(0o644)
    proxy.stop()
    proxy.start()
    assert proxy.log.read_text().count(words) == 1, proxy.log_tail()


def test_files_that_cannot_be_used(authority, tmp_path):
    pair, store = authority.server(), tmp_path / "store.p12"
    for options, words in [(files(pair, authority.server().key), "the key does not belong to the certificate"),
                           (files(authority.server("former", end=EXPIRED)), "expired"),
                           (files(pair, tmp_path / "nowhere"), "cannot read the file"),
                           (files(pair, pair.store(store, "secret")), "openssl pkcs12")]:
        code, said = check(*options)
        assert code == UNUSABLE and words in said, said


def test_a_chain_that_is_broken(authority, tmp_path):
    pair, other = authority.server(), Authority(tmp_path, "other")
    chain = pair.certificate.read_bytes()
    pair.certificate.write_bytes(chain + other.ca.read_bytes())
    code, said = check(*files(pair))
    assert code == UNUSABLE and f"tls_certificate {pair.certificate}: certificate 2 (`CN=other`) did not sign certificate 1" in said, said
    pair.certificate.write_bytes(chain + authority.ca.read_bytes())
    assert check(*files(pair)) == (0, "valid\n")


def test_a_certificate_without_names_or_for_other_hosts(authority):
    code, said = check(*files(authority.nameless()))
    assert code == UNUSABLE and "`CN=nameless` has no subjectAltName" in said, said
    code, said = check(*files(authority.server()), "--listen", "0.0.0.0:9042", "--advertise", "192.0.2.9:9042")
    assert code == 0 and "is for localhost, 127.0.0.1, and clients reach 192.0.2.9: " in said, said


@pytest.mark.parametrize("listener", ["admin", "locks_http"])
def test_a_certificate_of_a_page_for_other_hosts(authority, listener):
    pair, flag = authority.server(), f"--{listener.replace('_', '-')}"
    tls = [f"{flag}-tls-certificate", pair.certificate, f"{flag}-tls-key", pair.key]
    needed = ["--fleet", "main"] if listener == "locks_http" else []
    words = "is for localhost, 127.0.0.1, and clients reach shunt.example, 192.0.2.9: "
    for address, is_warned in [("192.0.2.9:9555,shunt.example", True), ("127.0.0.1:9555,shunt.example", False), ("0.0.0.0:9555", False)]:
        code, said = check(flag, address, *tls, *needed)
        assert code == 0 and (f"warning: {listener}_tls_certificate" in said and words in said) == is_warned, said


@pytest.mark.parametrize("options, words", [
    (["--tls", "required"], "TLS needs a certificate"),
    (["--tls-client-auth", "required", "--tls", "optional"], "clients' certificates need an authority"),
    (["--fleet", "main", "--tls", "required"], "set fleet_tls = on"),
    (["--node-tls", "on", "--node-tls-key", "k"], "--node-tls-key: needs its certificate"),
    (["--node-tls", "on", "--handover", "auto", "--handover-key-file", "k"], "set node_tls = off")])
def test_contradictions(options, words):
    code, said = check(*options)
    assert code == UNUSABLE and words in said, said


def test_options_without_effect(authority):
    code, said = check(*files(authority.server())[2:])
    assert code == 0 and "tls is off, so these have no effect: tls_certificate, tls_key" in said, said
