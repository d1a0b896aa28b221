"""Profiles from the text of `perf script`."""

from experiments import profile

SCRIPT = """
\tffffffff8200b199 tcp_sendmsg_locked
\tffffffff8200b81b tcp_sendmsg
\tffffffff81e2bef0 __x64_sys_sendto
\t          392967 <shunt_reactor::driver::epoll::Epoll as shunt_reactor::driver::Driver>::send


\tffffffff8200b199 tcp_sendmsg_locked
\tffffffff8200b81b tcp_sendmsg
\tffffffff81e2bef0 __x64_sys_sendto
\t          392967 <shunt_reactor::driver::epoll::Epoll as shunt_reactor::driver::Driver>::send

\tffffffff8172ec1c __x64_sys_epoll_pwait2

\tffffffff81e2bef0 __x64_sys_recvfrom

\tffffffff81000130 asm_sysvec_apic_timer_interrupt

\t    5594deadbeef
\t          3929ff shunt_proxy::aggregate::forward;plain
"""


def test_samples_are_counted_by_stack_and_by_the_system_call_they_are_in():
    counted = profile.stacks(SCRIPT)
    assert counted.total() == 6
    sent = ("send", ("<shunt_reactor::driver::epoll::Epoll as shunt_reactor::driver::Driver>::send", "__x64_sys_sendto", "tcp_sendmsg",
                     "tcp_sendmsg_locked"))
    assert counted[sent] == 2
    assert counted["own", ("shunt_proxy::aggregate::forward;plain", "[unknown]")] == 1
    assert {kind for kind, _ in counted} == {"send", "wait", "receive", "kernel", "own"}


def test_parts_of_a_query_add_up_to_it():
    found = profile.figures({"processes": [{"cpu_us_per_query": 6.0}]}, profile.stacks(SCRIPT))
    assert found == {"cpu_us": 6.0, "send_us": 2.0, "receive_us": 1.0, "wait_us": 1.0, "kernel_us": 1.0, "own_us": 1.0}


def test_stacks_reach_the_drawing_as_it_reads_them(tmp_path):
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\ncat\n", encoding="utf-8")
    tool.chmod(0o755)
    lines = profile.flame_graph(tool, profile.stacks(SCRIPT), "title").splitlines()
    assert "shunt_proxy::aggregate::forward:plain;[unknown] 1" in lines and len(lines) == 5
    assert all(line.rsplit(" ", 1)[1].isdigit() for line in lines)
