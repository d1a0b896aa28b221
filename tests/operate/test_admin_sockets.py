"""The Unix sockets of the admin pages of a dispatcher, an agent, a sidecar and a node: no other process is needed."""

import os
import signal
import subprocess

import pytest

from harness.ports import free_port
from harness.proxy import binary
from harness.waits import DEADLINE_SECONDS, until

# A port where nothing listens: the pages are there all the same.
NOBODY = "127.0.0.1:1"


def commands(directory) -> dict:
    key = directory / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    listen = ["--listen", f"127.0.0.1:{free_port()}"]
    return {
        "dispatcher": ["dispatch", *listen, "--backend", NOBODY, "--key-file", str(key)],
        "agent": ["agent", *listen, "--upstream", NOBODY, "--protocol", "http", "--key-file", str(key)],
        "sidecar": ["multiget", "serve", *listen, "--server", NOBODY],
        "node": ["node", *listen, "--data", str(directory / "data")],
    }


def ready(path, *options) -> subprocess.CompletedProcess:
    return subprocess.run([str(binary()), "ready", "--admin", f"unix:{path}", *options], capture_output=True, text=True)


@pytest.mark.parametrize("kind", ["dispatcher", "agent", "sidecar", "node"])
def test_the_socket_goes_with_its_process_and_replaces_that_of_a_dead_one(tmp_path, kind):
    path, log = tmp_path / "admin.sock", tmp_path / "log"

    def start() -> subprocess.Popen:
        with open(log, "ab") as out:
            return subprocess.Popen([str(binary()), *commands(tmp_path)[kind], "--admin", f"unix:{path}"], stdout=out, stderr=out)

    for ending, code in [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 0)]:
        process = start()
        try:
            until(lambda: ready(path).returncode in (0, 1), f"the {kind} answers", told=log.read_text)
            assert path.stat().st_mode & 0o777 == 0o600, "its owner alone may connect"
            refused = ready(path, "--tls")
            assert refused.returncode == 2 and "leave out --tls" in refused.stderr, refused
            process.send_signal(ending)
            assert process.wait(DEADLINE_SECONDS) == code, log.read_text()
        finally:
            process.kill()
            process.wait()
        assert path.exists() == (ending == signal.SIGKILL), "a process that ends in order removes its file"
    assert ready(path).returncode == 4
