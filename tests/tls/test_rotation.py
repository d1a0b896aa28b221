"""Certificates that are replaced under load, files that cannot be used, and sessions that are resumed."""

import asyncio
import os
import shutil
import socket
import ssl

import pytest

from harness.certificates import EXPIRED, client_context, place
from harness.cql import ANSWER_SECONDS, Connection, ConnectionLost
from harness.tickets import resumed, ticket_key
from harness.waits import until, until_async

QUERY = "SELECT cluster_name FROM system.local"
CLIENTS = 4


def shown(proxy, context) -> bytes:
    """The certificate that a new client gets."""
    with socket.create_connection(proxy.address, ANSWER_SECONDS) as plain:
        with context.wrap_socket(plain, server_hostname=proxy.host) as client:
            return client.getpeercert(binary_form=True)


async def stays(proxy, context, ended: asyncio.Event) -> int:
    """A client that keeps its connection; the number of its queries. Each must succeed."""
    connection, queries = await Connection.open(proxy.host, proxy.port, tls=context), 0
    while not ended.is_set():
        assert len(await connection.query(QUERY)) == 1
        queries += 1
    connection.close()
    return queries


async def comes_and_goes(proxy, context, ended: asyncio.Event) -> int:
    """Clients that connect, ask and leave, one after another; their number."""
    clients = 0
    while not ended.is_set():
        connection = await Connection.open(proxy.host, proxy.port, tls=context)
        assert len(await connection.query(QUERY)) == 1
        connection.close()
        clients += 1
    return clients


def test_certificates_are_replaced_under_load_without_a_failed_query(start, authority):
    first, context = authority.server(), client_context(authority.ca)
    proxy = start("required", pair=first)
    assert shown(proxy, context) == first.der

    async def work() -> None:
        ended = asyncio.Event()
        tasks = [asyncio.create_task(client(proxy, context, ended)) for client in (stays, comes_and_goes) for _ in range(CLIENTS)]
        for _ in range(3):
            pair = authority.server()
            pair.install(proxy.directory)
            proxy.reload()
            await until_async(lambda: asyncio.to_thread(lambda: shown(proxy, context) == pair.der),
                              "new clients get the new certificate", told=proxy.log_tail)
        ended.set()
        assert all(count > 0 for count in await asyncio.gather(*tasks))

    asyncio.run(work())
    assert proxy.metric("shunt_tls_reloads_total", result="changed") == 3
    assert proxy.metric("shunt_clients_closed_total") == 0, proxy.log_tail()


@pytest.mark.parametrize("fault, words", [("key", "does not belong to the certificate"), ("expired", "expired"), ("empty", "empty")])
def test_files_that_cannot_be_used_change_nothing(start, authority, fault, words):
    first, context = authority.server(), client_context(authority.ca)
    proxy = start("required", pair=first)
    other = authority.server("other", end=EXPIRED) if fault == "expired" else authority.server("other")
    content = b"" if fault == "empty" else other.certificate.read_bytes()
    place(content, proxy.directory / "tls.crt")
    if fault == "expired":
        place(other.key.read_bytes(), proxy.directory / "tls.key")
    proxy.reload()
    proxy.wait_until_it_says("the certificates stay as they are", words)
    assert proxy.metric("shunt_tls_reloads_total", result="failed") == 1
    assert shown(proxy, context) == first.der
    # The remedy takes effect with the next look.
    mended = authority.server()
    mended.install(proxy.directory)
    proxy.reload()
    until(lambda: shown(proxy, context) == mended.der, "new clients get the new certificate", told=proxy.log_tail)


def test_a_secret_that_kubernetes_renews_is_read_again(start, authority):
    """The kubelet lays a volume out as links to links, and replaces one of them."""
    first, context = authority.server(), client_context(authority.ca)
    proxy = start("required", pair=first)

    def renew(pair, version: str) -> None:
        (proxy.directory / version).mkdir()
        pair.install(proxy.directory / version)
        (proxy.directory / "..data_tmp").symlink_to(version)
        os.replace(proxy.directory / "..data_tmp", proxy.directory / "..data")

    renew(first, "..1")
    for name in ("tls.crt", "tls.key"):
        (proxy.directory / "link").symlink_to(f"..data/{name}")
        os.replace(proxy.directory / "link", proxy.directory / name)
    renewed = authority.server()
    renew(renewed, "..2")
    shutil.rmtree(proxy.directory / "..1")
    proxy.reload()
    until(lambda: shown(proxy, context) == renewed.der, "new clients get the renewed certificate", told=proxy.log_tail)


def test_the_metric_says_when_a_certificate_expires(start, authority):
    proxy = start("required", pair=authority.server(end="20270101000000Z"))
    path = str(proxy.directory / "tls.crt")
    assert 0 < proxy.metric("shunt_certificate_expires_seconds", use="clients", path=path) < 366 * 86_400


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_are_resumed_after_a_restart_and_at_another_proxy(start, authority, tmp_path, version):
    keys, pair, context = tmp_path / "keys", authority.server(), client_context(authority.ca, version=version)
    place(ticket_key(), keys)
    options = ["--tls-ticket-keys", str(keys)]
    proxy = start("required", *options, pair=pair)
    assert not resumed(proxy, context, None)[0]
    _, session = resumed(proxy, context, None)
    again, session = resumed(proxy, context, session)
    assert again
    proxy.stop()
    proxy.start()
    again, session = resumed(proxy, context, session)
    assert again
    assert proxy.metric("shunt_tls_handshakes_total", result="resumed") == 1
    other = start("required", *options, pair=pair)
    assert resumed(other, context, session)[0]
    # Without the file, tickets are of one process alone.
    alone = start("required", pair=pair)
    _, session = resumed(alone, context, None)
    alone.stop()
    alone.start()
    assert not resumed(alone, context, session)[0]


def test_a_reload_changes_what_clients_must_show(start, authority, application, tmp_path):
    file, context = tmp_path / "shunt.toml", client_context(authority.ca)
    file.write_text("")
    proxy = start("required", "--config", str(file))

    async def work() -> None:
        connected = await Connection.open(proxy.host, proxy.port, tls=context)
        file.write_text(f'tls_client_ca = "{tmp_path}/nowhere.crt"\ntls_client_auth = "required"\n')
        proxy.reload()
        await asyncio.to_thread(proxy.wait_until_it_says, "the configuration stays as it is", "nowhere.crt")
        assert shown(proxy, context)
        file.write_text(f'tls_client_ca = "{authority.ca}"\ntls_client_auth = "required"\n')
        proxy.reload()
        await asyncio.to_thread(proxy.wait_until_it_says, "configuration applied", "tls_client_auth")
        with pytest.raises((ssl.SSLError, ConnectionLost, ConnectionError)):
            await Connection.open(proxy.host, proxy.port, tls=context)
        known = await Connection.open(proxy.host, proxy.port, tls=client_context(authority.ca, application))
        for connection in (known, connected):
            assert len(await connection.query(QUERY)) == 1
            connection.close()

    asyncio.run(work())
