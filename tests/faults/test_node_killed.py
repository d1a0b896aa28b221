"""kill -9 of a node under load, its restart, and the same seen by a driver."""

import asyncio
import threading

from cassandra import ConsistencyLevel, OperationTimedOut, RequestExecutionException
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, NoHostAvailable
from cassandra.policies import HostStateListener

from harness import waits
from harness.driver import UNDISTURBED, profile
from harness.load import OF_A_LOST_REPLICA, Load

PAUSE_SECONDS = 0.03  # between a thread's writes: each is read again in the end


def test_kill_nine_and_restart(front, whole):
    victim = whole.nodes[2]

    async def scenario():
        async with Load(front.host, front.port, "killed") as load:
            await load.more_acknowledged(1000)
            victim.kill()
            await load.more_acknowledged(2000)
            victim.start()
            await asyncio.to_thread(victim.wait_ready)
            await load.more_acknowledged(1000)
        load.assert_clients_unharmed(OF_A_LOST_REPLICA)
        await asyncio.to_thread(whole.wait_up)
        await load.assert_nothing_lost()

    asyncio.run(scenario())


class Downs(HostStateListener):
    """Counts how often the driver believes that the proxy is down."""

    def __init__(self):
        self.count = 0

    def on_down(self, host):
        self.count += 1

    def on_up(self, host):
        pass

    def on_add(self, host):
        pass

    def on_remove(self, host):
        self.count += 1


def test_kill_nine_seen_by_a_driver(front, whole):
    """An unmodified driver with default settings but for time limits: no exception in its application,
    no host down."""
    victim = whole.nodes[1]
    quorum = profile(consistency_level=ConsistencyLevel.QUORUM)
    cluster = Cluster([front.host], port=front.port,
                      execution_profiles={EXEC_PROFILE_DEFAULT: quorum}, **UNDISTURBED)
    downs = Downs()
    cluster.register_listener(downs)
    session = cluster.connect("faults")
    insert = session.prepare("INSERT INTO writes (key, value) VALUES (?, ?)")
    written, stop, problems, unanswered = [], threading.Event(), [], []

    def write():
        number = 0
        while not stop.wait(PAUSE_SECONDS):
            number += 1
            key = f"driver-{threading.get_ident()}-{number}"
            try:
                session.execute(insert, (key, "x"), timeout=120)
                written.append(key)
            except OperationTimedOut as error:
                unanswered.append(repr(error))
            except Exception as error:  # every kind is reported
                problems.append(repr(error))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: len(written) > 200, problems)
        victim.kill()
        wait_for(lambda: len(written) > 800, problems)
        victim.start()
        victim.wait_ready()
        reached = len(written)
        wait_for(lambda: len(written) > reached + 200, problems)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    select = session.prepare("SELECT value FROM writes WHERE key = ?")
    whole.wait_up()
    missing = [key for key in written if read(session, select, key) is None]
    cluster.shutdown()
    assert not missing
    assert downs.count == 0
    # A coordinator that was killed while it wrote leaves the outcome open; the driver's policy decides about a retry.
    assert all("Timeout" in problem or "Unavailable" in problem for problem in problems), problems[:5]
    if unanswered:
        raise waits.Late(f"{len(unanswered)} writes without an answer: {unanswered[:5]}")


def read(session, select, key):
    """The row. A read that fails, as with a replica that has just come back, says nothing and is done again."""
    errors = []

    def attempt() -> "list | None":
        try:
            return [session.execute(select, (key,)).one()]
        except (OperationTimedOut, RequestExecutionException, NoHostAvailable) as error:
            errors.append(repr(error))
            return None

    return waits.until(attempt, f"{key} can be read", told=lambda: errors[-3:])[0]


def wait_for(condition, problems):
    waits.until(condition, "the driver writes on", 240, told=lambda: problems[-5:])
