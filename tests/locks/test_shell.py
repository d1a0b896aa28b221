"""`shunt lock`: a command runs while it holds a lock."""

import os
import select
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from harness.proxy import binary
from harness.waits import DEADLINE_SECONDS, until
from locks.fleet import command

# A command that goes on until this file is there.
UNTIL_THERE = "while [ ! -e {} ]; do sleep 0.05; done"


@pytest.fixture
def name(request):
    return f"{request.node.name}-{os.getpid()}"


def lock(fleet, *arguments, **more):
    contacts = ",".join(one.listen for one in fleet.proxies)
    return subprocess.Popen([str(binary()), "lock", "--contact-points", contacts, *arguments], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **more)


def ended(run) -> tuple:
    """(exit code, output, what it says of errors)"""
    out, err = run.communicate(timeout=DEADLINE_SECONDS)
    return run.returncode, out, err


def holder(session, name, table="locks"):
    return session.execute(f"SELECT owner, fence FROM shunt.{table} WHERE name = %s", (name,)).one()


def wait_for_holder(session, name):
    return until(lambda: holder(session, name), f"somebody holds {name}", every_seconds=0.05)


def test_a_command_knows_its_lock_and_its_exit_code_comes_through(fleet, session, name):
    run = lock(
        fleet,
        "--owner",
        "me",
        "--ttl",
        "300",
        name,
        "--",
        "sh",
        "-c",
        "echo $SHUNT_LOCK_NAME $SHUNT_LOCK_FENCE; exit 7",
    )
    code, out, err = ended(run)
    assert code == 7, err
    said, fence = out.split()
    assert said == name and int(fence) > 0
    assert holder(session, name) is None, "it was released"


def test_a_command_without_its_lock_says_so_and_runs_nothing(fleet, session, name):
    held = lock(fleet, "--ttl", "300", name, "--", "sleep", "3600")
    try:
        owner = wait_for_holder(session, name)["owner"]
        code, out, err = ended(
            lock(fleet, "--ttl", "300", "--wait", "0", name, "--", "echo", "ran")
        )
        assert (code, out) == (75, "") and f"is held by {owner} (fence" in err
        assert ended(
            lock(fleet, "--ttl", "300", "--wait", "1", "-E", "3", name, "--", "echo", "ran")
        )[:2] == (3, "")
    finally:
        held.send_signal(signal.SIGTERM)
        code = ended(held)[0]
    assert code == 128 + signal.SIGTERM, "the command was told"
    assert holder(session, name) is None


def test_the_lock_is_renewed_while_the_command_runs(fleet, session, name, tmp_path):
    """At a third of its time. What is left then is more than the 10 s that a machine may stand
    still."""
    run = lock(
        fleet, "--ttl", "24", name, "--", "sh", "-c", UNTIL_THERE.format(tmp_path / "renewed")
    )

    def seen() -> tuple:
        row = session.execute(
            "SELECT owner, fence, ttl_ms FROM shunt.locks WHERE name = %s", (name,)
        ).one()
        return (row["owner"], row["fence"], row["ttl_ms"]) if row else None

    *first, left = until(seen, f"somebody holds {name}", every_seconds=0.05)
    lowest = [left]

    def has_more_time() -> bool:
        *now, left = seen() or (None, None)
        assert now == first, "it is one hold"
        # What is left becomes less with time, and more by a renewal only.
        lowest[0], before = min(lowest[0], left), lowest[0]
        return left > before

    until(has_more_time, "it is renewed", every_seconds=0.05, told=lambda: lowest)
    (tmp_path / "renewed").touch()
    assert ended(run)[0] == 0
    assert holder(session, name) is None


def test_a_command_whose_lock_is_lost_is_stopped(fleet, session, name, tmp_path):
    begun = tmp_path / "begun"
    run = lock(fleet, "--ttl", "12", "--owner", "me", name, "--", "sh", "-c", f"touch {begun}; exec sleep 3600")
    # Before the command runs its lock may be asked for once more, and is then had anew.
    until(begun.exists, "the command runs", told=lambda: holder(session, name))
    # One that ended by itself meanwhile is lost as well.
    session.execute("DELETE FROM shunt.locks WHERE name = %s IF owner = 'me'", (name,))
    code, out, err = ended(run)
    assert code == 76 and "lost" in err, (out, err)


def number_in(file) -> int:
    """The number of a process that the file has in full."""
    return until(lambda: file.exists() and file.read_text().endswith("\n") and int(file.read_text()), f"{file} has a number",
                 every_seconds=0.05)


def parent_of(process: int) -> int:
    status = Path(f"/proc/{process}/stat").read_text()
    return int(status.rsplit(")", 1)[1].split()[1])


def has_ended(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return True
    return status.rsplit(")", 1)[1].split()[0] == "Z"


def test_what_the_command_began_is_stopped_with_it(fleet, session, name, tmp_path):
    """A shell that gets SIGTERM ends, and leaves the program that it waits for."""
    begun = tmp_path / "begun"
    run = lock(fleet, "--ttl", "12", "--owner", "me", name, "--", "sh", "-c", f"sleep 3600 & echo $! > {begun}; wait")
    process = number_in(begun)
    session.execute("DELETE FROM shunt.locks WHERE name = %s IF owner = 'me'", (name,))
    code, out, err = ended(run)
    assert code == 76 and "lost" in err, (out, err)
    assert has_ended(process), "it works on without the lock"


def test_the_lock_is_held_until_all_of_a_command_has_ended(fleet, session, name, tmp_path):
    begun, last = tmp_path / "begun", tmp_path / "last"
    stubborn = f"(trap '' TERM; {UNTIL_THERE.format(last)}) & echo $! > {begun}; wait"
    run = lock(fleet, "--ttl", "300", name, "--", "sh", "-c", stubborn)
    process = number_in(begun)
    shell = parent_of(process)
    run.send_signal(signal.SIGTERM)
    until(lambda: parent_of(process) != shell, "the shell has ended", every_seconds=0.05)
    assert run.poll() is None and holder(session, name), "a part of the command works on"
    last.touch()
    assert ended(run)[0] == 128 + signal.SIGTERM
    assert holder(session, name) is None


def test_a_reader_shares(fleet, session, name, tmp_path):
    """Each reader waits for the other."""
    readers = []
    for own, others in (("a", "b"), ("b", "a")):
        other, last = (UNTIL_THERE.format(tmp_path / file) for file in (others, "last"))
        waits = f"touch {tmp_path / own}; {other}; {last}; echo done"
        readers.append(
            lock(fleet, "--shared", "--fast", "--ttl", "300", name, "--", "sh", "-c", waits)
        )
    until(
        lambda: (tmp_path / "a").exists() and (tmp_path / "b").exists(),
        "both read",
        every_seconds=0.05,
    )
    writer = lock(fleet, "--fast", "--ttl", "300", "--wait", "500", name, "--", "echo", "wrote")
    queue = "SELECT state FROM shunt.lock_queue WHERE name = %s AND fast = true"
    until(
        lambda: (
            [row["state"] for row in session.execute(queue, (name,))] == ["held", "held", "waiting"]
        ),
        "the writer waits",
        every_seconds=0.05,
    )
    assert writer.poll() is None
    (tmp_path / "last").touch()
    assert [ended(run)[1] for run in [*readers, writer]] == ["done\n", "done\n", "wrote\n"]


def test_proxies_may_allow_different_waits(fleet, session, name, tmp_path):
    """The proxy that a client asks has the say: `shunt lock` waits as long as that proxy allows, and a
    lock's owner with a shorter limit refuses no request of another proxy."""
    one = fleet.proxies[0]

    def config(*arguments):
        done = command("config", *arguments, "--admin", one.admin)
        assert done.returncode == 0, done.stderr

    config("set", "lock_wait_max_ms", "250")
    others = fleet.connect(to=1, timeout_seconds=DEADLINE_SECONDS)
    held = []
    try:
        take = "INSERT INTO shunt.locks (name, owner, wait_ms) VALUES (%s, %s, %s) IF NOT EXISTS USING TTL 300"
        # Some of them belong to the first proxy, with all but certainty.
        names = [f"{name}-{number}" for number in range(16)]
        for each in names:
            assert session.execute(take, (each, "me", 0)).one()["[applied]"], each
            assert not others.execute(take, (each, "you", 500)).one()["[applied]"], each
        there = tmp_path / "there"
        held = [lock(fleet, "--ttl", "300", name, "--", "sh", "-c", UNTIL_THERE.format(there))]
        wait_for_holder(session, name)
        words = ["lock", "--contact-points", one.listen, "--ttl", "300", "--wait", "300", name, "--", "echo", "ran"]
        waits = subprocess.Popen([str(binary()), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        held.append(waits)
        state = "SELECT state FROM shunt.lock_queue WHERE name = %s"
        until(lambda: [row for row in session.execute(state, (name,)) if row["state"] == "waiting"],
              "the command waits", told=waits.poll, every_seconds=0.02)
        there.touch()
        assert ended(waits)[:2] == (0, "ran\n")
    finally:
        config("reset", "lock_wait_max_ms")
        others.cluster.shutdown()
        for run in held:
            run.kill()
            run.wait()


class LostAnswer:
    """Passes connections on to a proxy. The answer to the first request for a lock is lost with its connection."""

    def __init__(self, proxy: str):
        self.proxy, self.is_lost = proxy, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:{}".format(self.listener.getsockname()[1])
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client) -> None:
        host, port = self.proxy.rsplit(":", 1)
        with client, socket.create_connection((host, int(port))) as server:
            asks = False
            while True:
                for one in select.select([client, server], [], [])[0]:
                    said = one.recv(65_536)
                    if not said or one is server and asks:
                        return
                    if one is client and b"INSERT INTO shunt." in said and not self.is_lost:
                        self.is_lost = asks = True
                    (server if one is client else client).sendall(said)


def test_a_lock_whose_grant_nobody_heard_of_is_given_back(fleet, session, name):
    """Otherwise it would keep others out for its time to live, which may be a day."""
    relay = LostAnswer(fleet.proxies[0].listen)
    try:
        words = ["lock", "--contact-points", relay.address, "--ttl", "300", "--wait", "0", name, "--", "echo", "ran"]
        run = subprocess.Popen([str(binary()), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        code, out, err = ended(run)
        assert (code, out) == (4, "") and relay.is_lost, (code, out, err)
        assert holder(session, name) is None
    finally:
        relay.listener.close()
