"""A fleet whose rows have another format than its proxies know, or that no proxy writes, and members of a later version beside them."""

import json

import pytest

from harness import cql
from harness.waits import DEADLINE_SECONDS, until
from locks.fleet import command

IS_BOOTSTRAPPING, IN_DOUBT, QUORUM = 0x1002, 0x1100, 4
LATER = 9


@pytest.fixture
def node(nodes):
    host, port = nodes[0].split(",")[0].rsplit(":", 1)
    with cql.Session(host, int(port)) as direct:
        yield direct


def of_fleet(node, fleet, column):
    return node.query(f"SELECT {column} FROM shunt_meta.fleet WHERE cluster = '{fleet.name}'", QUORUM)[0][column]


def set_format(node, fleet, number):
    node.query(f"UPDATE shunt_meta.fleet SET format = {number} WHERE cluster = '{fleet.name}' IF EXISTS", QUORUM)


def metric(one, name):
    def value():
        return [
            line.rsplit(" ", 1)[1]
            for line in one.get("/metrics")[1].splitlines()
            if line.startswith(f"{name} ")
        ]

    return until(value, f"{one.listen} tells {name}")[0]


def has(one, **wanted):
    """Waits until these metrics of a proxy have these values."""
    seen = {}

    def are_wanted():
        seen.update({name: metric(one, f"shunt_fleet_{name}") for name in wanted})
        return seen == wanted

    until(are_wanted, f"{one.listen} has {wanted}", told=lambda: seen)


def ask(one, text):
    with cql.Session(one.host, one.port) as session:
        return session.query(text)[0]


def asked_until_served(one, text):
    """Asks until a proxy serves: if its lease ended while the machine stood still, it has done
    nothing, or does not know what another proxy has done."""
    def answer():
        try:
            return ask(one, text)
        except cql.CqlError as error:
            if error.code not in (IS_BOOTSTRAPPING, IN_DOUBT):
                raise

    return until(answer, f"{one.listen} answers {text}")


def take(name, owner):
    values = f"VALUES ('{name}', '{owner}')"
    return f"INSERT INTO shunt.locks (name, owner) {values} IF NOT EXISTS USING TTL 600"


def release(name, owner):
    return f"DELETE FROM shunt.locks WHERE name = '{name}' IF owner = '{owner}'"


def start_again(one):
    """In order, so that nobody has to find out that it is gone."""
    one.terminate()
    assert one.wait(DEADLINE_SECONDS) == 0
    one.start()


def test_a_format_that_is_not_known_keeps_a_proxy_out_and_it_says_so(fleet, node):
    fence = asked_until_served(fleet.proxies[0], take("kept", "ann"))["fence"]
    set_format(node, fleet, LATER)
    try:
        for one in fleet.proxies:
            has(one, unknown_format=str(LATER), lease="0", shards="0")
        start_again(fleet.proxies[0])
        for one in fleet.proxies:
            until(
                lambda: f"rows have format {LATER}" in one.get("/status")[1],
                f"{one.listen} says so",
            )
            with pytest.raises(cql.CqlError) as caught:
                ask(one, take("other", "bob"))
            assert caught.value.code == IS_BOOTSTRAPPING
            assert ask(one, "SELECT cluster_name FROM system.local"), (
                "queries are served all the same"
            )
            until(
                lambda: any(
                    f"format {LATER}" in line and "upgrade this proxy" in line
                    for line in one.log.read_text().splitlines()
                ),
                f"the log of {one.listen} says so",
                told=one.log_tail,
            )
        this_one = ["--contact-points", fleet.contact_points, "--name", fleet.name]
        for words, stream in ((["fleet", "status"], "stderr"), (["doctor"], "stdout")):
            shown = command(*words, *this_one)
            assert shown.returncode == 2 and f"format {LATER}" in getattr(shown, stream), shown
        assert of_fleet(node, fleet, "format") == LATER, "nobody has written to it"
    finally:
        set_format(node, fleet, 1)
    # The rows of the members that they were before are not yet all declared dead.
    for one in fleet.proxies:
        has(one, lease="1", unknown_format="0")
    fleet.wait_until_settled(len(fleet.proxies))
    again = asked_until_served(fleet.proxies[1], take("kept", "bob"))
    assert (again["[applied]"], again["owner"], again["fence"]) == (False, "ann", fence)
    assert all(metric(one, "shunt_fleet_unknown_format") == "0" for one in fleet.proxies)
    asked_until_served(fleet.proxies[1], release("kept", "ann"))


def test_a_member_of_a_later_version_is_one_like_others_as_long_as_the_rows_have_the_older_format(fleet, node):
    """The test plays the member by its row, so it is silent, and declared dead after its lease."""
    later = "6e0a9d3e-0f0e-4b6a-9c55-3f4b8f0d1a01"
    node.query("INSERT INTO shunt_meta.member (cluster, inc, addr, state, beat, ts_limit, format, leaving) "
               f"VALUES ('{fleet.name}', {later}, '10.9.9.9:9042', 1, 3, 7, {LATER}, true) IF NOT EXISTS", QUORUM)
    start_again(fleet.proxies[2])
    has(fleet.proxies[2], lease="1")
    assert "10.9.9.9:9042" in fleet.status()
    assert of_fleet(node, fleet, "format") == 1, "a format is raised to what all members know"
    until(
        lambda: (
            not any(
                "10.9.9.9:9042" in line and " live " in line for line in fleet.status().splitlines()
            )
        ),
        "it is declared dead",
    )
    fleet.wait_until_settled(len(fleet.proxies))
    assert all(metric(one, "shunt_fleet_unknown_format") == "0" for one in fleet.proxies)


def bucket_of(name):
    """The bucket of a name, by the rule in crates/locks/src/types.rs."""
    number = 0xCBF29CE484222325
    for byte in name.encode():
        number = (number ^ byte) * 0x100000001B3 % 2**64
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        number = (number ^ number >> 33) * factor % 2**64
    number ^= number >> 33
    return number % 64 * 16 + (number >> 32) % 16


def test_a_row_that_no_proxy_writes_is_told_of_until_it_is_deleted(fleet, node):
    for one in fleet.proxies:
        one.kill()
    bucket, unreadable = bucket_of("forged"), "shunt_lock_unreadable_partitions"
    node.query("INSERT INTO shunt_meta.lock (bucket, name, slot, owner, role, mode, fence, ttl_ms) "
               f"VALUES ({bucket}, 'forged', '', 'eve', '', 'X', {2**63 - 1}, 1000)", QUORUM)
    for one in fleet.proxies:
        one.start()

    def told():
        return [one for one in fleet.proxies if f'{unreadable}{{bucket="{bucket}"}} 1' in one.get("/metrics")[1]]

    def is_told():
        with pytest.raises(cql.CqlError) as caught:
            ask(fleet.proxies[0], take("forged", "ann"))
        if caught.value.code == IN_DOUBT:
            return None  # the proxy that owns it did not answer in time
        assert caught.value.code == IS_BOOTSTRAPPING
        found = told()
        if len(found) != 1:
            return None
        status = json.loads(found[0].get("/status")[1])["fleet"]
        # A proxy that stood still may have lost what it had to tell between these two questions.
        return (found[0], status) if status["unreadable"] else None

    # The members that were killed have all shards for a lease yet, and nobody reads the row before.
    fleet.wait_until_settled(len(fleet.proxies))
    owner, status = until(is_told, "one proxy tells of the row")
    assert status["unreadable"] == [{"bucket": bucket, "name": "forged"}]
    assert any(f"partition {bucket} " in alert and '"forged"' in alert for alert in status["alerts"]), status
    node.query(f"DELETE FROM shunt_meta.lock WHERE bucket = {bucket} AND name = 'forged'", QUORUM)
    assert asked_until_served(fleet.proxies[0], take("forged", "ann"))["owner"] == "ann"
    until(
        lambda: not told() and json.loads(owner.get("/status")[1])["fleet"]["alerts"] == [],
        "nobody tells of it any more",
    )
    asked_until_served(owner, release("forged", "ann"))
