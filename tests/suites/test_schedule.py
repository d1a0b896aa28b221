"""Tests of the order in which suites begin: lanes, needs, services, processors, and the longest chain first."""

import sys

sys.path.insert(0, "scripts")

from runner.schedule import Schedule  # noqa: E402 (the path comes first)
from runner.table import Service, Suite  # noqa: E402


def suite(name, seconds=1.0, processors=0.4, **more) -> Suite:
    return Suite(name=name, command="true", runs=["test"], seconds=seconds, processors=processors, **more)


def begun(schedule) -> list:
    """The entries that can begin now."""
    found = []
    while (entry := schedule.next()) is not None:
        found.append(entry)
    return found


def names(entries) -> list:
    return [entry.name for entry in entries]


def test_the_longest_chain_begins_first():
    build, long_one, short = suite("build", 10, provides="binary"), suite("long", 30, needs=["binary"]), suite("short", 35)
    assert names(begun(Schedule([short, build, long_one], [], 10)))[0] == "build"


def test_no_more_begins_than_the_processors_carry():
    schedule = Schedule([suite(str(number), processors=1.0) for number in range(5)], [], 2)
    first = begun(schedule)
    assert len(first) == 2
    schedule.ended(first[0], True)
    assert len(begun(schedule)) == 1


def test_something_runs_however_much_it_wants():
    assert len(begun(Schedule([suite("wide", processors=64)], [], 2))) == 1


def test_a_lane_has_one_at_a_time_in_the_order_of_the_table():
    one, two = suite("one", 1, lane="x"), suite("two", 100, lane="x")
    schedule = Schedule([one, two], [], 10)
    assert names(begun(schedule)) == ["one"]
    schedule.ended(one, True)
    assert names(begun(schedule)) == ["two"]


def test_suites_that_need_a_failed_one_do_not_run():
    build, tests, more = suite("build", provides="binary"), suite("tests", needs=["binary"]), suite("more", needs=["tests"])
    schedule = Schedule([build, tests, more], [], 10)
    schedule.ended(begun(schedule)[0], False)
    assert [(entry.name, lacking) for entry, lacking in schedule.impossible()] == [("tests", "binary"), ("more", "tests")]
    assert schedule.is_over()


def test_a_service_runs_from_its_first_suite_to_its_last_and_keeps_its_lane():
    ring = Service(name="ring", kind="ring", seconds=5, processors=1, lane="address")
    users = [suite("a", service="ring"), suite("b", service="ring")]
    other = suite("other", 1, lane="address")
    schedule = Schedule([*users, other], [ring], 10)
    assert names(begun(schedule)) == ["ring"]
    schedule.ended(ring, True)
    assert sorted(names(begun(schedule))) == ["a", "b"]
    schedule.ended(users[0], True)
    assert schedule.idle_services() == []
    schedule.ended(users[1], False)
    assert names(schedule.idle_services()) == ["ring"] and begun(schedule) == []
    schedule.stopped(ring)
    assert names(begun(schedule)) == ["other"]


def test_a_suite_that_is_alone_has_nothing_beside_it():
    schedule = Schedule([suite("alone", 100, 0.1, alone=True), suite("b")], [], 10)
    first = begun(schedule)
    assert names(first) == ["alone"]
    schedule.ended(first[0], True)
    assert names(begun(schedule)) == ["b"]


def test_a_thousand_suites_are_scheduled():
    suites = [suite(str(number), number, needs=[str(number - 1)] if number % 10 else []) for number in range(1000)]
    schedule, ended = Schedule(suites, [], 4), 0
    while not schedule.is_over():
        for entry in begun(schedule):
            schedule.ended(entry, True)
            ended += 1
    assert ended == 1000
