"""What an operator does with locks from a shell: sees who holds them and who waits, and takes one from its holder."""

import json
import subprocess
import threading
import time

import pytest
from cassandra import WriteTimeout
from cassandra.cluster import Cluster

from harness import cql
from harness.driver import PATIENT
from harness.embedded import Embedded
from harness.proxy import Proxy, binary

from locks.fleet import NETWORK, Fleet

# Whoever holds a lock or waits for one does so until the commands have ended that look at it, of which each is a process of its own.
TTL_SECONDS, MEMORY_TTL_SECONDS, WAIT_MS = 300, 110, 100_000


@pytest.fixture(scope="module")
def fleet(nodes):
    contact, replicas = nodes
    fleet = Fleet(contact, "test_operator", replicas, 9350, 6_000, memory_ttl_ms=120_000, query_timeout_ms=30_000, lock_wait_max_ms=120_000)
    try:
        yield fleet.start()
    finally:
        fleet.stop()


@pytest.fixture(scope="module")
def session(fleet):
    session = fleet.connect(timeout_seconds=150)
    yield session
    session.cluster.shutdown()


def locks(contact, *arguments):
    done = subprocess.run([str(binary()), "locks", "--contact-points", contact, *arguments], capture_output=True, text=True,
                          timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def acquire(session, name, owner, table="locks", wait_ms=0):
    ttl = MEMORY_TTL_SECONDS if table == "fast_locks" else TTL_SECONDS
    text = f"INSERT INTO shunt.{table} (name, owner, wait_ms) VALUES (%s, %s, %s) IF NOT EXISTS USING TTL {ttl}"
    if table.endswith("rwlocks"):
        text = f"INSERT INTO shunt.{table} (name, owner, wait_ms, mode) VALUES (%s, %s, %s, 'S') IF NOT EXISTS USING TTL {ttl}"
    for _ in range(3):
        try:
            return session.execute(text, (name, owner, wait_ms)).one()
        except WriteTimeout:
            # Its node was slow. Whoever asks again as the same owner is told what it has.
            pass
    return session.execute(text, (name, owner, wait_ms)).one()


def release(session, name, owner, table="locks"):
    assert session.execute(f"DELETE FROM shunt.{table} WHERE name = %s IF owner = %s", (name, owner)).one()["[applied]"]


def rows_of(out):
    return [line.split() for line in out.splitlines()[1:]]


def own(out, prefix):
    """Rows of a test's own locks: a lock that an earlier fleet left behind is held for its TTL from when its partition is read."""
    return [row for row in rows_of(out) if row[1].startswith(prefix)]


def wait_for(so):
    deadline = time.monotonic() + 90
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_one_lock_is_shown_with_all_who_wait_in_order_whichever_proxy_is_asked(fleet, session):
    fence = acquire(session, "shown", "ann")["fence"]
    waiting = []
    for owner in ("bob", "cat"):
        waiting.append(threading.Thread(target=acquire, args=(session, "shown", owner, "locks", WAIT_MS)))
        waiting[-1].start()
        wait_for(lambda: f"waiting  {owner}" in locks(fleet.proxies[0].listen, "shown")[1])
    for one in fleet.proxies:
        code, out, err = locks(one.listen, "shown")
        rows = [[row[0], row[1], row[2]] for row in rows_of(out)]
        assert (code, rows) == (0, [["durable", "held", "ann"], ["durable", "waiting", "bob"], ["durable", "waiting", "cat"]]), err
        assert str(fence) in out.splitlines()[1]
        assert locks(one.listen, "shown", "--fast")[1] == "nobody holds lock shown or waits for it\n"
    for owner in ("ann", "bob", "cat"):
        wait_for(lambda: f"held     {owner}" in locks(fleet.proxies[0].listen, "shown")[1])
        release(session, "shown", owner)
    for thread in waiting:
        thread.join(150)
    # Whoever was told WriteTimeout although it was granted has asked once more, and may have been granted a second time.
    for owner in ("bob", "cat"):
        session.execute("DELETE FROM shunt.locks WHERE name = %s IF owner = %s", ("shown", owner))
    assert "nobody" in locks(fleet.proxies[0].listen, "shown")[1]


def test_all_locks_of_the_fleet_are_listed_and_the_longest_queue_first(fleet, session):
    names = [f"listed-{number}" for number in range(12)]
    for name in names:
        acquire(session, name, "ann")
    acquire(session, "listed-fast", "bob", "fast_locks")
    waiter = threading.Thread(target=acquire, args=(session, "listed-7", "cat", "locks", WAIT_MS))
    waiter.start()
    try:
        for one in fleet.proxies:
            wait_for(lambda: rows_of(locks(one.listen)[1])[0][1] == "listed-7")
            code, out, err = locks(one.listen, "--limit", "100")
            listed = {row[1]: row for row in own(out, "listed-")}
            assert code == 0 and set(listed) == {*names, "listed-fast"}, (out, err)
            assert (listed["listed-fast"][0], listed["listed-3"][0]) == ("memory", "durable")
            assert rows_of(out)[0][1] == "listed-7" and rows_of(out)[0][-2] == "1"
            assert {row[-1] for row in listed.values()} == {other.listen for other in fleet.proxies}, "each tells of its own"
            assert len(rows_of(locks(one.listen, "--limit", "3")[1])) == 3
            assert [row[1] for row in rows_of(locks(one.listen, "--fast")[1])] == ["listed-fast"]
    finally:
        for name in names:
            release(session, name, "ann")
        waiter.join(150)
        release(session, "listed-7", "cat")
        release(session, "listed-fast", "bob", "fast_locks")
    code, out, err = locks(fleet.proxies[0].listen)
    assert (code, own(out, "listed-"), err) == (0, [], "")
    assert rows_of(out) or out == "nobody holds a lock or waits for one\n"


def status_of(one):
    code, text = one.get("/status")
    assert code == 200, text
    return json.loads(text)["fleet"]


@pytest.mark.parametrize("table, kept", [("locks", "durable"), ("fast_locks", "memory")])
def test_the_status_page_shows_the_members_and_the_longest_queues(fleet, session, table, kept):
    acquire(session, "alone", "ann", table)
    fence = acquire(session, "queued", "ann", table)["fence"]
    waiters = [threading.Thread(target=acquire, args=(session, "queued", owner, table, WAIT_MS)) for owner in ("bob", "cat")]

    def queues():
        return [(queue, one.listen) for one in fleet.proxies for queue in status_of(one)["queues"] if queue["name"] in ("alone", "queued")]

    for count, waiter in enumerate(waiters, 1):
        waiter.start()
        wait_for(lambda: [queue["waiters"] for queue, _ in queues()] == [count])
    try:
        (queue, listen), = queues()
        expected = {"name": "queued", "kept": kept, "owner": "ann", "shared": False, "fence": fence, "waiters": 2}
        assert {**queue, "ttl_ms": 0} == {**expected, "ttl_ms": 0} and 0 < queue["ttl_ms"] <= TTL_SECONDS * 1000, "whoever waits for no lock is no queue"
        keeper, = [row[-1] for row in rows_of(locks(listen)[1]) if row[:2] == [kept, "queued"]]
        assert listen == keeper, "each proxy shows its own"
    finally:
        for owner in ("ann", "bob", "cat"):
            wait_for(lambda: f"held     {owner}" in locks(fleet.proxies[0].listen, "queued", *(["--fast"] if kept == "memory" else []))[1])
            release(session, "queued", owner, table)
        for waiter in waiters:
            waiter.join(150)
        release(session, "alone", "ann", table)
    for one in fleet.proxies:
        status = status_of(one)
        live = {member["address"]: member for member in status["members"] if member["state"] == "live"}
        assert set(live) == {other.listen for other in fleet.proxies} and [address for address in live if live[address]["is_this"]] == [one.listen]
        assert sum(member["shards"] for member in live.values()) == 64 and live[one.listen]["shards"] == status["shards"]
        assert status["cores_missing"] == [] and status["alerts"] == [] and status["lease"] and 0 < status["lease_left_ms"] <= fleet.lease_ms


def test_a_driver_sees_the_locks_of_the_proxy_that_it_asks(fleet, session):
    acquire(session, "seen", "ann")
    seen = []
    for number in range(len(fleet.proxies)):
        one = fleet.connect(to=number)
        rows = one.execute("SELECT name, owner, waiters FROM shunt.locks")
        seen += [tuple(row.values()) for row in rows if row["name"].startswith("seen")]
        prepared = one.prepare("SELECT name FROM shunt.fast_locks LIMIT ?")
        assert list(one.execute(prepared, (5,))) == []
        one.cluster.shutdown()
    release(session, "seen", "ann")
    assert seen == [("seen", "ann", 0)]


@pytest.mark.parametrize("table", ["locks", "fast_locks"])
def test_a_lock_is_taken_from_its_holder_only_by_force_and_the_next_fence_is_larger(fleet, session, table):
    fast = ["--fast"] if table.startswith("fast") else []
    fence = acquire(session, "forced", "ann", table)["fence"]
    for one in fleet.proxies:
        code, out, err = locks(one.listen, "forced", "--release", *fast)
        assert (code, out) == (2, "") and "ann" in err and str(fence) in err and "--force" in err
    answers = []
    waiter = threading.Thread(target=lambda: answers.append(acquire(session, "forced", "bob", table, WAIT_MS)))
    waiter.start()
    wait_for(lambda: "bob" in locks(fleet.proxies[1].listen, "forced")[1])
    code, out, err = locks(fleet.proxies[2].listen, "forced", "--release", "--force", *fast)
    assert code == 0 and "taken from ann" in out and str(fence) in out, err
    waiter.join(150)
    assert answers[0]["[applied]"] and answers[0]["fence"] > fence
    renewed = session.execute(f"UPDATE shunt.{table} USING TTL 20 SET owner = 'ann' WHERE name = 'forced' IF owner = 'ann'").one()
    assert (renewed["[applied]"], renewed["owner"]) == (False, "bob"), "the holder learns of it when it renews"
    release(session, "forced", "bob", table)
    assert locks(fleet.proxies[0].listen, "forced", "--release", "--force", *fast)[1] == "nobody holds lock forced\n"


def test_all_who_share_a_lock_lose_it(fleet, session):
    for owner in ("r1", "r2"):
        acquire(session, "readers", owner, "rwlocks")
    code, out, err = locks(fleet.proxies[0].listen, "readers", "--release", "--force")
    assert code == 0 and "from r1" in out and "from r2" in out, err
    assert "nobody" in locks(fleet.proxies[0].listen, "readers")[1]


def members_at(fleet, one):
    """State and number of shards of each process that is or was a member at a proxy's address."""
    status = json.loads(fleet.status("--json"))
    assert (status["name"], status["lease_ms"], status["level"]) == (fleet.name, fleet.lease_ms, "SERIAL")
    return [(member["state"], member["shards"]) for member in status["members"] if member["address"] == one.listen]


def test_a_proxy_that_is_drained_hands_its_locks_over_and_stops(fleet, session):
    fence = acquire(session, "handed", "ann")["fence"]
    drain = [str(binary()), "fleet", "drain", "--contact-points", fleet.contact_points, "--name", fleet.name]
    unknown = subprocess.run([*drain, "10.9.9.9:1"], capture_output=True, text=True, timeout=60, check=False)
    assert unknown.returncode != 0 and all(one.listen in unknown.stderr for one in fleet.proxies), unknown
    victim = fleet.proxies[2]
    done = subprocess.run([*drain, victim.listen], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0 and f"{victim.listen} has left" in done.stdout, done
    assert victim.process.wait(90) == 0
    shards = fleet.shards()
    assert sum(shards.values()) == 64 and victim.listen not in shards, "nobody had to find out that it is gone"
    assert ("left", 0) in members_at(fleet, victim), "which its row tells for good"
    again = acquire(session, "handed", "bob")
    assert (again["[applied]"], again["owner"], again["fence"]) == (False, "ann", fence)
    release(session, "handed", "ann")
    victim.start()
    fleet.wait_until_settled(len(fleet.proxies))


def test_a_proxy_that_is_declared_dead_while_it_is_drained_has_not_left(fleet):
    victim = fleet.proxies[2]
    victim.pause()
    try:
        drain = [str(binary()), "fleet", "drain", "--contact-points", fleet.contact_points, "--name", fleet.name, victim.listen]
        done = subprocess.run(drain, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 1 and "was declared dead" in done.stderr and "has left" not in done.stdout, done
        wait_for(lambda: ("sealed", 0) in members_at(fleet, victim))
    finally:
        victim.resume()
    # It is a new member.
    fleet.wait_until_settled(len(fleet.proxies))


def test_a_node_is_not_taken_for_a_proxy_without_locks(fleet):
    node = fleet.contact_points.split(",")[0]
    for arguments in ([], ["some"], ["some", "--release", "--force"]):
        code, out, err = locks(node, *arguments)
        assert (code, out) == (2, "") and "is a node" in err


def test_a_command_does_not_run_under_a_row_that_a_node_or_a_proxy_of_no_fleet_writes(fleet):
    """Either would carry the statement out, and would be asked for the lock by nobody else."""
    node = fleet.contact_points.split(",")[0]
    with Proxy(fleet.contact_points, f"{NETWORK}.9:9370", f"{NETWORK}.9:9371") as alone:
        for contact, what in ((node, "is a node"), (alone.listen, "is a proxy without --fleet")):
            done = subprocess.run([str(binary()), "lock", "--contact-points", contact, "a-row", "--", "echo", "it runs"],
                                  capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, done.stdout) == (2, "") and what in done.stderr, done
            code, out, err = locks(contact)
            assert (code, out) == (2, "") and what in err
        cluster = Cluster([alone.host], port=alone.port, **PATIENT)
        rows = list(cluster.connect().execute("SELECT * FROM shunt.rwlocks"))
        cluster.shutdown()
    assert rows == []


def test_a_ring_has_one_fleet(fleet):
    made = subprocess.run([str(binary()), "fleet", "init", "--contact-points", fleet.contact_points, "--name", "another"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert made.returncode == 2 and "the ring has the fleet" in made.stderr, made
    shown = subprocess.run([str(binary()), "fleet", "status", "--contact-points", fleet.contact_points, "--name", "another"],
                           capture_output=True, text=True, timeout=60, check=False)
    assert shown.returncode == 2 and "there is no fleet another" in shown.stderr, shown


def test_a_fleet_is_made_at_nodes(fleet):
    """A proxy shows itself in place of the nodes and their datacentres, and refuses to have the tables of locks made."""
    with Proxy(fleet.contact_points, f"{NETWORK}.9:9370", f"{NETWORK}.9:9371") as alone:
        for contact in (fleet.proxies[0].listen, alone.listen):
            made = subprocess.run([str(binary()), "fleet", "init", "--contact-points", contact, "--name", fleet.name],
                                  capture_output=True, text=True, timeout=60, check=False)
            assert (made.returncode, made.stdout) == (2, "") and "is a proxy" in made.stderr, made
    made = subprocess.run([str(binary()), "fleet", "init", "--contact-points", fleet.contact_points, "--name", fleet.name,
                           "--replicas", str(fleet.replicas), "--lease-ms", "9000"], capture_output=True, text=True, timeout=60, check=False)
    assert made.returncode == 0 and "was there before" in made.stdout, made
    assert f"its lease in ms is {fleet.lease_ms}, not 9000" in made.stdout, "what it has not changed is said"


def test_a_fleet_that_the_ring_has_no_nodes_for_leaves_nothing_behind():
    contact = f"{NETWORK}.11:9148"
    init = [str(binary()), "fleet", "init", "--contact-points", contact]

    def keyspaces():
        with cql.Session(f"{NETWORK}.11", 9148) as direct:
            return {row["keyspace_name"] for row in direct.query("SELECT keyspace_name FROM system_schema.keyspaces")}

    with Embedded(f"init-{NETWORK}", contact, ["node", "--listen", contact, "--admin", "off"], [contact]):
        before = keyspaces()
        with cql.Session(f"{NETWORK}.11", 9148) as direct:
            datacentre = direct.query("SELECT data_center FROM system.local")[0]["data_center"]
        for options, says in (
            (["--datacentre", "nowhere", "--replicas", "1"], ["no datacentre nowhere", f"{datacentre} (1 node)"]),
            (["--datacentre", datacentre], ["has 1 node for 3 replicas", "--replicas 1"]),
            ([], ["has 1 node for 3 replicas", "--replicas 1"]),
        ):
            made = subprocess.run([*init, *options], capture_output=True, text=True, timeout=60, check=False)
            assert (made.returncode, made.stdout) == (2, "") and all(part in made.stderr for part in says), made
            assert keyspaces() == before
        # An application's table, and what an attempt with other options has left.
        with cql.Session(f"{NETWORK}.11", 9148) as direct:
            simple = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            direct.query(f"CREATE KEYSPACE shunt WITH replication = {simple}")
            direct.query("CREATE TABLE shunt.locks (id int PRIMARY KEY, v text)")
            made = subprocess.run([*init, "--replicas", "1"], capture_output=True, text=True, timeout=60, check=False)
            assert made.returncode == 2 and "shunt.locks" in made.stderr and "Nothing was made" in made.stderr, made
            assert keyspaces() == {*before, "shunt"}
            direct.query("DROP TABLE shunt.locks")
            made = subprocess.run([*init, "--datacentre", datacentre, "--replicas", "1"], capture_output=True, text=True, timeout=60, check=False)
            assert made.returncode == 2 and "shunt is there already, with replication factor 1" in made.stderr, made
            direct.query("DROP KEYSPACE shunt")
        tables = {*(f"shunt_meta.{name}" for name in ("fleet", "member", "lock", "transactional", "txn_shard", "txn_low", "txn_log", "txn_fence",
                                                      "txn_outcome")),
                  *(f"shunt.{name}" for name in ("locks", "fast_locks", "rwlocks", "fast_rwlocks", "lock_queue", "guards"))}
        for dropped, says, new in (([], "is made", tables), ([], "was there before", set()),
                                   (["shunt.lock_queue", "shunt.locks"], "was there before", {"shunt.lock_queue", "shunt.locks"})):
            with cql.Session(f"{NETWORK}.11", 9148) as direct:
                for table in dropped:
                    direct.query(f"DROP TABLE {table}")
            made = subprocess.run([*init, "--datacentre", datacentre, "--replicas", "1"], capture_output=True, text=True, timeout=60, check=False)
            assert made.returncode == 0 and says in made.stdout, made
            lines = dict(line.split(": ") for line in made.stdout.splitlines()[1:])
            assert {what: set(named.split(", ")) for what, named in lines.items()} == {
                what: named for what, named in (("tables made", new), ("tables found", tables - new)) if named}
        assert keyspaces() == {*before, "shunt", "shunt_meta"}


def doctor(contact, *arguments):
    done = subprocess.run([str(binary()), "doctor", "--json", "--contact-points", contact, *arguments], capture_output=True, text=True,
                          timeout=60, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def of(lines, check):
    return [(line["level"], line["what"]) for line in lines if line["check"] == check]


def test_a_doctor_looks_at_the_ring_and_the_fleet(fleet):
    node = fleet.contact_points.split(",")[0]
    deadline = time.monotonic() + 60
    code, lines = doctor(node, "--name", fleet.name)
    # The tests of the drivers change the schema of the same ring: until the nodes agree again that is warned of.
    while of(lines, "schema")[0][0] != "ok" and time.monotonic() < deadline:
        code, lines = doctor(node, "--name", fleet.name)
    assert of(lines, "members") == [("ok", "3 live")] and [level for level, _ in of(lines, "clock")] == ["ok"] * len(of(lines, "clock"))
    assert of(lines, "facades") == [("ok", "its tables have no rows")] and of(lines, "level") == [("ok", "SERIAL")]
    assert of(lines, "schema")[0][0] == "ok"
    replicas = "ok" if fleet.replicas >= 3 else "warning"
    assert [level for level, _ in of(lines, "replicas")] == [replicas]
    assert all(line["advice"] for line in lines if line["level"] != "ok"), "what to do is said"
    worst = {line["level"] for line in lines}
    assert code == (1 if "warning" in worst else 0) and "error" not in worst, lines


def test_a_doctor_finds_rows_where_none_may_be_and_what_is_not_there(fleet):
    node = fleet.contact_points.split(",")[0]
    code, lines = doctor(node, "--name", "nowhere")
    (level, what), = of(lines, "fleet")
    assert (code, level) == (2, "error") and "there is no fleet nowhere; the ring has" in what and fleet.name in what, lines
    code, lines = doctor(fleet.proxies[0].listen, "--name", fleet.name)
    assert code == 2 and "is a proxy" in lines[0]["what"], lines
    host, port = node.rsplit(":", 1) if ":" in node else (node, 9042)
    direct = Cluster([host], port=int(port), **PATIENT).connect()
    direct.execute("INSERT INTO shunt.fast_locks (name, owner) VALUES ('stray', 'somebody')")
    try:
        code, lines = doctor(node, "--name", fleet.name)
        assert code == 2 and [level for level, _ in of(lines, "facades")] == ["error"], lines
        assert next(line for line in lines if line["check"] == "facades")["of"] == "shunt.fast_locks"
    finally:
        direct.execute("TRUNCATE shunt.fast_locks")
        direct.cluster.shutdown()


def test_a_doctor_sees_that_no_proxy_runs_although_their_rows_say_that_they_live(fleet):
    """The last test here: it ends the fleet."""
    for one in fleet.proxies:
        one.kill()
    code, lines = doctor(fleet.contact_points.split(",")[0], "--name", fleet.name)
    found = of(lines, "members")
    assert code >= 1 and ("ok", "3 live") not in found, lines
    assert sum("not renewed" in what for _, what in found) == 3 and any("nobody serves locks" in what for _, what in found), lines
