"""Servers that want a login, and databases other than the first: sidecar and shims connect as they are told, and say what is wrong."""

import subprocess

import pytest

from harness.proxy import binary
from harness.redis import ANSWER_SECONDS, Multiget, only_with, why_not
from harness.waits import DEADLINE_SECONDS

pytestmark = only_with(why_not())

PASSWORD = "open sesame"
KEYS = [f"key:{number}" for number in range(60)]


def password_file(directory, text: str = PASSWORD):
    file = directory / "password"
    file.write_text(f"{text}\n")
    file.chmod(0o600)
    return file


# Who the servers let in has nothing to do with how the application speaks.
@pytest.mark.parametrize(("protocol", "user"), [(2, None), (3, "app")])
def test_values_come_from_servers_with_a_login_and_from_the_database_that_is_named(tmp_path, protocol, user):
    import redis

    # The default user's password, and another one of a user with a name.
    server_options = ["--requirepass", PASSWORD, "--user", "app", "on", ">secret", "~*", "+@all"]
    login = ["--password-file", password_file(tmp_path, "secret"), "--user", user] if user else ["--password-file", password_file(tmp_path)]
    options = [*login, "--database", "3"]
    for mode in ("tcp", "cli", "coordinator"):
        directory = tmp_path / mode
        directory.mkdir()
        with Multiget(directory, servers=3, mode=mode, server_options=server_options, serve_options=options, shim_options=options) as tier, \
                redis.Redis(port=tier.port, protocol=protocol, socket_timeout=ANSWER_SECONDS, db=3) as client:
            for key in KEYS:
                client.set(key, key)

            def bring_datagrams_all() -> bool:
                """A shim that is not connected yet says that its server is to be asked."""
                before = tier.status()["keys_over_tcp"]
                for first in range(40):
                    keys = KEYS[first:first + 12]
                    assert client.mget(keys) == [key.encode() for key in keys]
                return tier.status()["keys_over_tcp"] == before

            if mode == "tcp":
                assert bring_datagrams_all() is False
            else:
                tier.until(bring_datagrams_all, "shims have what is asked for")
            assert tier.status()["failed"] == 0
            sizes = []
            for port in tier.server_ports:
                with redis.Redis(port=port, password=PASSWORD, db=3) as server:
                    sizes.append(server.dbsize())
            assert sum(sizes) == len(KEYS)
            with pytest.raises(redis.ResponseError, match="database 3 alone"):
                client.execute_command("SELECT", "0")


def test_a_login_that_servers_refuse_is_named_and_no_key_is_missing_because_of_it(tmp_path):
    import redis

    options = ["--password-file", password_file(tmp_path, "wrong")]
    with Multiget(tmp_path, servers=2, server_options=["--requirepass", PASSWORD], serve_options=options, shim_options=options) as tier, \
            redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS) as client:
        for command in (("MGET", *KEYS), ("SET", "key", "value")):
            with pytest.raises(redis.ResponseError, match="refuses the login .*WRONGPASS.*--password-file"):
                client.execute_command(*command)
        tier.until(lambda: "refuses the login" in tier.log("shim-0"), "a shim says so, too", "shim-0")


def test_a_database_that_there_is_not_is_named(tmp_path):
    import redis

    with Multiget(tmp_path, servers=1, serve_options=["--database", "99"]) as tier, redis.Redis(port=tier.port, socket_timeout=ANSWER_SECONDS) as client:
        with pytest.raises(redis.ResponseError, match="refuses the database .*--database"):
            client.set("key", "value")
        with redis.Redis(port=tier.server_ports[0]) as server:
            assert server.dbsize() == 0, "it was written where nobody asked for"


def test_a_login_that_may_not_select_a_database_writes_to_no_other(tmp_path):
    import redis

    # May read and write all keys, and is not let into a database other than the first.
    server_options = ["--user", "app", "on", ">secret", "~*", "+@read", "+@write", "-select"]
    options = ["--password-file", password_file(tmp_path, "secret"), "--user", "app", "--database", "3"]
    with Multiget(tmp_path, servers=2, server_options=server_options, serve_options=options, shim_options=options) as tier:
        others = [redis.Redis(port=port) for port in tier.server_ports]
        for other in others:
            other.mset({key: "of another" for key in KEYS})
        for protocol in (2, 3):
            with redis.Redis(port=tier.port, protocol=protocol, socket_timeout=ANSWER_SECONDS) as client:
                for command in (("SET", KEYS[0], "new"), ("DEL", KEYS[1]), ("MGET", *KEYS)):
                    with pytest.raises(redis.ResponseError, match="refuses the database .*NOPERM"):
                        client.execute_command(*command)
        for other in others:
            assert other.mget(KEYS) == [b"of another"] * len(KEYS)
            other.close()


def test_a_password_is_taken_from_a_file_that_nobody_else_reads(tmp_path):
    def check(*arguments):
        command = [binary(), "check", "multiget", "serve", "--server", "127.0.0.1:6379", *arguments]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
        return done.returncode, done.stdout + done.stderr

    file = password_file(tmp_path)
    assert check("--password-file", file) == (0, "valid\n")
    file.chmod(0o644)
    assert check("--password-file", file)[0] == 2 and "chmod 600" in check("--password-file", file)[1]
    assert "1 to 4096" in check("--password-file", password_file(tmp_path, ""))[1]
    assert "cannot be read" in check("--password-file", tmp_path / "none")[1]
    assert "--password-file" in check("--user", "app")[1]
