"""Locks for an operator at a shell, who sees holders and waiters, and takes a lock from its holder."""

import json
import os
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from cassandra import InvalidRequest, WriteTimeout
from cassandra.cluster import Cluster

from harness import cql
from harness.driver import PATIENT
from harness.embedded import Embedded
from harness.proxy import Proxy
from harness.waits import DEADLINE_SECONDS, Late, unpaused, until

from locks.conftest import WAIT_MAX_MS
from locks.fleet import NETWORK, command, insistent, is_late, run

# Whoever holds a lock or waits for one does so until the commands have ended that look at it, of which each is a process of its own.
TTL_SECONDS, WAIT_MS = 550, WAIT_MAX_MS
# Half of what a doctor waits for an answer.
PAUSE_SECONDS = 5


def locks(contact, *arguments):
    done = command("locks", "--contact-points", contact, *arguments)
    return done.returncode, done.stdout, done.stderr


def acquire(session, name, owner, table="locks", wait_ms=0):
    columns, values = "name, owner, wait_ms", "%s, %s, %s"
    if table.endswith("rwlocks"):
        columns, values = f"{columns}, mode", f"{values}, 'S'"
    insert = f"INSERT INTO shunt.{table} ({columns}) VALUES ({values})"
    text = f"{insert} IF NOT EXISTS USING TTL {TTL_SECONDS}"
    late = []

    def answer():
        try:
            return session.execute(text, (name, owner, wait_ms)).one()
        except WriteTimeout as error:
            # Its node was slow. Whoever asks again as the same owner is told what it has.
            late[:] = [error]

    return until(answer, f"{owner} is told who has {name}", told=lambda: late)


def begin(pool, session, name, owner, table="locks"):
    """Somebody who waits for a lock."""
    return pool.submit(acquire, session, name, owner, table, WAIT_MS)


@pytest.fixture
def name(request):
    """A name that no other test takes, short enough for a column of a table."""
    return f"{zlib.crc32(request.node.name.encode()):x}-{os.getpid()}"


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as pool:
        yield pool


def release(session, name, owner, table="locks"):
    assert session.execute(f"DELETE FROM shunt.{table} WHERE name = %s IF owner = %s", (name, owner)).one()["[applied]"]


def rows_of(out):
    return [line.split() for line in out.splitlines()[1:]]


def own(out, prefix):
    """Rows of a test's own locks: a lock that an earlier fleet left behind is held for its TTL from when its partition is read."""
    return [row for row in rows_of(out) if row[1].startswith(prefix)]


def see(so, what):
    until(so, what, every_seconds=0.05)


def test_one_lock_is_shown_with_all_who_wait_in_order_whichever_proxy_is_asked(
    fleet, session, name, pool
):
    fence = acquire(session, name, "ann")["fence"]
    waiting = []
    for owner in ("bob", "cat"):
        waiting.append(begin(pool, session, name, owner))
        see(
            lambda: f"waiting  {owner}" in locks(fleet.proxies[0].listen, name)[1], f"{owner} waits"
        )
    for one in fleet.proxies:
        code, out, err = locks(one.listen, name)
        rows = [[row[0], row[1], row[2]] for row in rows_of(out)]
        assert (code, rows) == (0, [["durable", "held", "ann"], ["durable", "waiting", "bob"], ["durable", "waiting", "cat"]]), err
        assert str(fence) in out.splitlines()[1]
        assert locks(one.listen, name, "--fast")[1] == f"lock {name} has no holder and no queue\n"
    for owner in ("ann", "bob", "cat"):
        see(
            lambda: f"held     {owner}" in locks(fleet.proxies[0].listen, name)[1],
            f"{owner} holds it",
        )
        release(session, name, owner)
    assert [one.result()["owner"] for one in waiting] == ["bob", "cat"]
    # Whoever was told WriteTimeout although it was granted has asked once more, and may have been granted a second time.
    for owner in ("bob", "cat"):
        session.execute("DELETE FROM shunt.locks WHERE name = %s IF owner = %s", (name, owner))
    assert "has no holder" in locks(fleet.proxies[0].listen, name)[1]


def test_all_locks_of_the_fleet_are_listed_and_the_longest_queue_first(fleet, session, name, pool):
    names, shown = [], set()

    def listed_by() -> set:
        return {row[-1] for row in own(locks(fleet.proxies[0].listen, "--limit", "1000")[1], name)}

    # A hash decides which proxy owns a name: there are so many that each proxy owns one.
    while len(names) < 12 or shown != {one.listen for one in fleet.proxies}:
        assert len(names) < 400, shown
        names += [f"{name}-{number}" for number in range(len(names), len(names) + 12)]
        for one in names[-12:]:
            acquire(session, one, "ann")
        shown = listed_by()
    longest, fast = names[7], f"{name}-fast"
    acquire(session, fast, "bob", "fast_locks")
    waiter = begin(pool, session, longest, "cat")
    try:
        for one in fleet.proxies:
            see(
                lambda: rows_of(locks(one.listen)[1])[0][1] == longest,
                "it is the first of the list",
            )
            code, out, err = locks(one.listen, "--limit", "1000")
            listed = {row[1]: row for row in own(out, name)}
            assert code == 0 and set(listed) == {*names, fast}, (out, err)
            assert (listed[fast][0], listed[names[3]][0]) == ("memory", "durable")
            assert rows_of(out)[0][1] == longest and rows_of(out)[0][-2] == "1"
            assert {row[-1] for row in listed.values()} == {other.listen for other in fleet.proxies}, "each tells of its own"
            assert len(rows_of(locks(one.listen, "--limit", "3")[1])) == 3
            assert [row[1] for row in rows_of(locks(one.listen, "--fast")[1])] == [fast]
    finally:
        for one in names:
            release(session, one, "ann")
        waiter.result()
        release(session, longest, "cat")
        release(session, fast, "bob", "fast_locks")
    code, out, err = locks(fleet.proxies[0].listen)
    assert (code, own(out, name), err) == (0, [], "")
    assert rows_of(out) or out == "no lock is held or waited for\n"


def status_of(one):
    code, text = one.get("/status")
    if not code:
        raise Late(f"{one.listen} has not shown its status")
    assert code == 200, text
    return json.loads(text)["fleet"]


@pytest.mark.parametrize("table, kept", [("locks", "durable"), ("fast_locks", "memory")])
def test_the_status_page_shows_the_members_and_the_longest_queues(
    fleet, session, name, pool, table, kept
):
    alone, queued = f"{name}-alone", f"{name}-queued"
    acquire(session, alone, "ann", table)
    fence, waiting = acquire(session, queued, "ann", table)["fence"], []

    def queues():
        return [
            (queue, one.listen)
            for one in fleet.proxies
            for queue in status_of(one)["queues"]
            if queue["name"] in (alone, queued)
        ]

    for count, owner in enumerate(("bob", "cat"), 1):
        waiting.append(begin(pool, session, queued, owner, table))
        see(lambda: [queue["waiters"] for queue, _ in queues()] == [count], f"{owner} waits")
    try:
        (queue, listen), = queues()
        expected = {
            "name": queued,
            "kept": kept,
            "owner": "ann",
            "shared": False,
            "fence": fence,
            "waiters": 2,
        }
        assert {**queue, "ttl_ms": 0} == {**expected, "ttl_ms": 0} and 0 < queue["ttl_ms"] <= TTL_SECONDS * 1000, "whoever waits for no lock is no queue"
        keeper, = [row[-1] for row in rows_of(locks(listen)[1]) if row[:2] == [kept, queued]]
        assert listen == keeper, "each proxy shows its own"
    finally:
        fast = ["--fast"] if kept == "memory" else []
        for owner in ("ann", "bob", "cat"):
            see(
                lambda: f"held     {owner}" in locks(fleet.proxies[0].listen, queued, *fast)[1],
                f"{owner} holds it",
            )
            release(session, queued, owner, table)
        for one in waiting:
            one.result()
        release(session, alone, "ann", table)
    for one in fleet.proxies:
        status = status_of(one)
        live = {member["address"]: member for member in status["members"] if member["state"] == "live"}
        assert set(live) == {other.listen for other in fleet.proxies}
        assert [address for address in live if live[address]["is_this"]] == [one.listen]
        assert sum(member["shards"] for member in live.values()) == 64 and live[one.listen]["shards"] == status["shards"]
        assert status["cores_missing"] == [] and status["alerts"] == [] and status["lease"] and 0 < status["lease_left_ms"] <= fleet.lease_ms


def test_a_driver_sees_the_locks_of_the_proxy_that_it_asks(fleet, session, name):
    acquire(session, name, "ann")
    seen = []
    for number in range(len(fleet.proxies)):
        one = insistent(fleet.connect(to=number))
        rows = one.execute("SELECT name, owner, waiters FROM shunt.locks")
        seen += [tuple(row.values()) for row in rows if row["name"] == name]
        prepared = one.prepare("SELECT name FROM shunt.fast_locks LIMIT ?")
        # A test that failed may have left others.
        assert (name,) not in [tuple(row.values()) for row in one.execute(prepared, (5,))]
        one.cluster.shutdown()
    release(session, name, "ann")
    assert seen == [(name, "ann", 0)]


@pytest.mark.parametrize("table", ["locks", "fast_locks"])
def test_a_lock_is_taken_from_its_holder_only_by_force_and_the_next_fence_is_larger(
    fleet, session, name, pool, table
):
    fast = ["--fast"] if table.startswith("fast") else []
    fence = acquire(session, name, "ann", table)["fence"]
    for one in fleet.proxies:
        code, out, err = locks(one.listen, name, "--release", *fast)
        assert (code, out) == (2, "") and "ann" in err and str(fence) in err and "--force" in err
    waiter = begin(pool, session, name, "bob", table)
    see(lambda: "bob" in locks(fleet.proxies[1].listen, name)[1], "bob waits")
    take(fleet.proxies[2], name, *fast, says=["taken from ann", str(fence)])
    answer = waiter.result()
    assert answer["[applied]"] and answer["fence"] > fence
    renewed = session.execute(
        f"UPDATE shunt.{table} USING TTL 20 SET owner = 'ann' WHERE name = %s IF owner = 'ann'",
        (name,),
    ).one()
    assert (renewed["[applied]"], renewed["owner"]) == (False, "bob"), "the holder learns of it when it renews"
    release(session, name, "bob", table)
    take(fleet.proxies[0], name, *fast, says=[f"lock {name} has no holder\n"])


def take(one, name, *fast, says):
    """From whoever holds it. A command without an answer may have done so, or not."""
    done = run("locks", "--contact-points", one.listen, name, "--release", "--force", *fast)
    if is_late(done):
        raise Late(str(done))
    assert done.returncode == 0 and all(text in done.stdout for text in says), done


def test_every_sharer_loses_the_lock(fleet, session, name):
    for owner in ("r1", "r2"):
        acquire(session, name, owner, "rwlocks")
    take(fleet.proxies[0], name, says=["from r1", "from r2"])
    assert "has no holder" in locks(fleet.proxies[0].listen, name)[1]


def members_at(fleet, one):
    """State and number of shards of each process that is or was a member at a proxy's address."""
    status = json.loads(fleet.status("--json"))
    assert (status["name"], status["lease_ms"], status["level"]) == (fleet.name, fleet.lease_ms, "SERIAL")
    return [(member["state"], member["shards"]) for member in status["members"] if member["address"] == one.listen]


@pytest.mark.parametrize("how", ["by its row", "by a signal"])
def test_a_proxy_that_stops_in_order_hands_its_locks_over(fleet, session, name, how):
    fence, victim = acquire(session, name, "ann")["fence"], fleet.proxies[2]
    try:
        leave(fleet, victim, how)
        shards = fleet.shards()
        assert sum(shards.values()) == 64 and victim.listen not in shards, "nobody had to find out that it is gone"
        assert ("left", 0) in members_at(fleet, victim), "which its row tells for good"
        again = acquire(session, name, "bob")
        assert (again["[applied]"], again["owner"], again["fence"]) == (False, "ann", fence)
        release(session, name, "ann")
    finally:
        # Other tests need it, whatever was seen here.
        victim.kill()
        victim.start()
    fleet.wait_until_settled(len(fleet.proxies))


def leave(fleet, victim, how):
    """Makes a proxy stop in order."""
    if how == "by its row":
        drain = [
            "fleet",
            "drain",
            "--contact-points",
            fleet.contact_points,
            "--name",
            fleet.name,
            "--wait",
            "10m",
        ]
        unknown = command(*drain, "10.9.9.9:1")
        assert unknown.returncode != 0 and all(
            one.listen in unknown.stderr for one in fleet.proxies
        ), unknown
        done = run(*drain, victim.listen)
        if is_late(done):
            raise Late(str(done))
        assert done.returncode == 0 and f"{victim.listen} has left" in done.stdout, done
    else:
        victim.terminate()
    assert victim.wait(DEADLINE_SECONDS) == 0


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
            done = command("lock", "--contact-points", contact, "a-row", "--", "echo", "it runs")
            assert (done.returncode, done.stdout) == (2, "") and what in done.stderr, done
            code, out, err = locks(contact)
            assert (code, out) == (2, "") and what in err
        cluster = Cluster([alone.host], port=alone.port, **PATIENT)
        with pytest.raises(InvalidRequest, match="this proxy is in no fleet"):
            cluster.connect().execute("SELECT * FROM shunt.rwlocks")
        cluster.shutdown()
    host, port = node.rsplit(":", 1)
    cluster = Cluster([host], port=int(port), **PATIENT)
    rows = list(cluster.connect().execute("SELECT * FROM shunt.rwlocks"))
    cluster.shutdown()
    assert rows == []


def test_a_ring_has_one_fleet(fleet):
    made = command("fleet", "init", "--contact-points", fleet.contact_points, "--name", "another")
    assert made.returncode == 2 and "the ring has the fleet" in made.stderr, made
    shown = command(
        "fleet", "status", "--contact-points", fleet.contact_points, "--name", "another"
    )
    assert shown.returncode == 2 and "there is no fleet another" in shown.stderr, shown


def test_a_fleet_is_made_at_nodes(fleet):
    """A proxy shows itself in place of the nodes and their datacentres, and refuses to have the tables of locks made."""
    with Proxy(fleet.contact_points, f"{NETWORK}.9:9370", f"{NETWORK}.9:9371") as alone:
        for contact in (fleet.proxies[0].listen, alone.listen):
            made = command("fleet", "init", "--contact-points", contact, "--name", fleet.name)
            assert (made.returncode, made.stdout) == (2, "") and "is a proxy" in made.stderr, made
    made = command("fleet", "init", "--contact-points", fleet.contact_points, "--name", fleet.name,
                   "--replicas", str(fleet.replicas), "--lease-ms", "9000")
    assert made.returncode == 0 and "exists already" in made.stdout, made
    assert f"its lease in ms is {fleet.lease_ms}, not 9000" in made.stdout, "what it has not changed is said"


def test_a_fleet_that_the_ring_has_no_nodes_for_leaves_nothing_behind():
    contact = f"{NETWORK}.11:9148"
    init = ["fleet", "init", "--contact-points", contact]

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
            made = command(*init, *options)
            assert (made.returncode, made.stdout) == (2, "") and all(part in made.stderr for part in says), made
            assert keyspaces() == before
        # An application's table, and what an attempt with other options has left.
        with cql.Session(f"{NETWORK}.11", 9148) as direct:
            simple = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            direct.query(f"CREATE KEYSPACE shunt WITH replication = {simple}")
            direct.query("CREATE TABLE shunt.locks (id int PRIMARY KEY, v text)")
            made = command(*init, "--replicas", "1")
            assert made.returncode == 2 and "shunt.locks" in made.stderr and "Nothing was created" in made.stderr, made
            assert keyspaces() == {*before, "shunt"}
            direct.query("DROP TABLE shunt.locks")
            made = command(*init, "--datacentre", datacentre, "--replicas", "1")
            assert made.returncode == 2 and "shunt is there already, with replication factor 1" in made.stderr, made
            direct.query("DROP KEYSPACE shunt")
        tables = {*(f"shunt_meta.{name}" for name in ("fleet", "member", "lock", "transactional", "txn_shard", "txn_low", "txn_log", "txn_fence",
                                                      "txn_outcome")),
                  *(f"shunt.{name}" for name in ("locks", "fast_locks", "rwlocks", "fast_rwlocks", "lock_queue", "guards"))}
        for dropped, says, new in (([], "was created", tables), ([], "exists already", set()),
                                   (["shunt.lock_queue", "shunt.locks"], "exists already", {"shunt.lock_queue", "shunt.locks"})):
            with cql.Session(f"{NETWORK}.11", 9148) as direct:
                for table in dropped:
                    direct.query(f"DROP TABLE {table}")
            made = command(*init, "--datacentre", datacentre, "--replicas", "1")
            assert made.returncode == 0 and says in made.stdout, made
            lines = dict(line.split(": ") for line in made.stdout.splitlines()[1:])
            assert {what: set(named.split(", ")) for what, named in lines.items()} == {
                what: named for what, named in (("tables made", new), ("tables found", tables - new)) if named}
        assert keyspaces() == {*before, "shunt", "shunt_meta"}
        # Modes and rules as an early build had them, spread over the ring.
        earlier = {"shunt_meta.transactional": "keyspace_name text, table_name text, mode text, PRIMARY KEY (keyspace_name, table_name)",
                   "shunt.guards": "table_name text PRIMARY KEY, lock text, fast boolean, mode text"}
        for table, columns in earlier.items():
            with cql.Session(f"{NETWORK}.11", 9148) as direct:
                direct.query(f"DROP TABLE {table}")
                direct.query(f"CREATE TABLE {table} ({columns})")
            made = command(*init, "--datacentre", datacentre, "--replicas", "1")
            assert made.returncode == 2 and f"the table {table} has another layout" in made.stderr, made
            assert "set every mode to off" in made.stderr and "Nothing was created" in made.stderr, made
            code, lines = doctor(contact)
            bad = [(line["of"], line["level"]) for line in lines if line["check"] == "layout" and line["level"] != "ok"]
            assert (code, bad) == (2, [(table, "error")]), lines
            with cql.Session(f"{NETWORK}.11", 9148) as direct:
                direct.query(f"DROP TABLE {table}")
            made = command(*init, "--datacentre", datacentre, "--replicas", "1")
            assert made.returncode == 0 and f"tables made: {table}" in made.stdout, made
            assert [level for level, _ in of(doctor(contact)[1], "layout")] == ["ok", "ok"]


def doctor(contact, *arguments):
    """The findings of `shunt doctor` on a machine that does not pause meanwhile, because it judges
    clocks and answers in time."""
    done = unpaused(
        lambda: run("doctor", "--json", "--contact-points", contact, *arguments), PAUSE_SECONDS
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def of(lines, check):
    return [(line["level"], line["what"]) for line in lines if line["check"] == check]


def test_a_doctor_looks_at_the_ring_and_the_fleet(fleet):
    node, found = fleet.contact_points.split(",")[0], []

    def nodes_agree() -> bool:
        found[:] = doctor(node, "--name", fleet.name)
        # The tests of the drivers change the schema of the same ring. The doctor warns of that
        # until the nodes agree again.
        return [level for level, _ in of(found[1], "schema")][:1] == ["ok"]

    until(nodes_agree, "nodes agree on the schema", told=lambda: found)
    code, lines = found
    assert of(lines, "members") == [("ok", "3 live")] and [level for level, _ in of(lines, "clock")] == ["ok"] * len(of(lines, "clock"))
    assert of(lines, "lock_tables") == [("ok", "its tables have no rows")] and of(lines, "level") == [("ok", "SERIAL")]
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
        assert code == 2 and [level for level, _ in of(lines, "lock_tables")] == ["error"], lines
        assert next(line for line in lines if line["check"] == "lock_tables")["of"] == "shunt.fast_locks"
    finally:
        direct.execute("TRUNCATE shunt.fast_locks")
        direct.cluster.shutdown()
