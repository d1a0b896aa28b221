"""`shunt lock`: a command runs while it holds a lock."""

import signal
import subprocess
import time

import pytest

from harness.proxy import binary


@pytest.fixture(scope="module")
def session(fleet):
    session = fleet.connect()
    yield session
    session.cluster.shutdown()


def lock(fleet, *arguments, **more):
    contacts = ",".join(one.listen for one in fleet.proxies)
    return subprocess.Popen([str(binary()), "lock", "--contact-points", contacts, *arguments], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, **more)


def holder(session, name, table="locks"):
    return session.execute(f"SELECT owner, fence FROM shunt.{table} WHERE name = %s", (name,)).one()


def wait_for_holder(session, name, table="locks"):
    deadline = time.monotonic() + 90
    while holder(session, name, table) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return holder(session, name, table)


def test_a_command_knows_its_lock_and_its_exit_code_comes_through(fleet, session):
    run = lock(fleet, "--owner", "me", "shell", "--", "sh", "-c", "echo $SHUNT_LOCK_NAME $SHUNT_LOCK_FENCE; exit 7")
    out, err = run.communicate(timeout=60)
    assert run.returncode == 7, err
    name, fence = out.split()
    assert name == "shell" and int(fence) > 0
    assert holder(session, "shell") is None, "it was released"


def test_who_does_not_get_it_says_so_and_runs_nothing(fleet, session):
    held = lock(fleet, "taken", "--", "sleep", "30")
    try:
        wait_for_holder(session, "taken")
        run = lock(fleet, "--wait", "0", "taken", "--", "echo", "ran")
        out, err = run.communicate(timeout=60)
        assert (run.returncode, out) == (75, "") and f"is held by {holder(session, 'taken')['owner']} (fence" in err
        run = lock(fleet, "--wait", "2", "-E", "3", "taken", "--", "echo", "ran")
        assert (run.communicate(timeout=60)[0], run.returncode) == ("", 3)
    finally:
        held.send_signal(signal.SIGTERM)
        held.communicate(timeout=60)
    assert held.returncode == 128 + signal.SIGTERM, "the command was told"
    assert holder(session, "taken") is None


def test_it_is_renewed_for_as_long_as_the_command_runs(fleet, session):
    run = lock(fleet, "--ttl", "6", "long", "--", "sleep", "14")
    first = wait_for_holder(session, "long")
    time.sleep(9)
    assert holder(session, "long") == first
    assert run.wait(60) == 0
    assert holder(session, "long") is None


def test_a_command_whose_lock_is_lost_is_stopped(fleet, session):
    run = lock(fleet, "--ttl", "3", "--owner", "me", "lost", "--", "sleep", "60")
    wait_for_holder(session, "lost")
    assert session.execute("DELETE FROM shunt.locks WHERE name = 'lost' IF owner = 'me'").one()["[applied]"]
    out, err = run.communicate(timeout=60)
    assert run.returncode == 76 and "lost" in err, (out, err)


def test_a_reader_shares(fleet, session):
    readers = [lock(fleet, "--shared", "--fast", "read", "--", "sh", "-c", "sleep 3; echo done") for _ in range(2)]
    writer = lock(fleet, "--fast", "read", "--", "echo", "wrote")
    outs = [run.communicate(timeout=60)[0] for run in [*readers, writer]]
    assert outs == ["done\n", "done\n", "wrote\n"]
