"""Dispatchers and agents for an operator: their pages, metrics and configuration."""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request

import pytest

from harness import hosts
from harness.moved import Moved
from harness.ports import free_port
from harness.proxy import binary
from harness.relay import Relay, expect, steady, why_not
from harness.waits import DEADLINE_SECONDS, until

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "nothing is missing")


class Watched(Relay):
    """A dispatcher and two agents, each with pages of its own."""

    def __init__(self, directory):
        self.admin = {name: free_port() for name in ("dispatch", "agent-0", "agent-1")}
        super().__init__(directory, dispatch_options=["--admin", f"127.0.0.1:{self.admin['dispatch']}"])

    def wait_until_it_answers(self):
        """With each of them: one is enough for an answer."""
        super().wait_until_it_answers()
        self.until("both agents are there", lambda: [backend["links"] for backend in self.status("dispatch")["dispatcher"]["backends"]] == [1, 1])

    def start_agent(self, index: int):
        self.agent_options = ["--admin", f"127.0.0.1:{self.admin[f'agent-{index}']}"]
        super().start_agent(index)

    def page(self, name: str, path: str) -> tuple:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin[name]}{path}", timeout=DEADLINE_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def status(self, name: str) -> dict:
        return json.loads(self.page(name, "/status")[1])

    def until(self, what: str, is_so) -> None:
        until(is_so, what, every_seconds=0.05, told=self._logs)


def metric(text: str, name: str) -> float:
    """The sum of all lines of a metric, which has to be there."""
    found = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    assert found, f"no {name} in\n{text}"
    return sum(found)


@pytest.fixture
def watched(tmp_path):
    with Watched(tmp_path) as watched:
        (watched.files / "large").write_bytes(os.urandom(200_000))
        yield watched


def get(relay, path: str) -> bytes:
    with urllib.request.urlopen(relay.url(path), timeout=DEADLINE_SECONDS) as answer:
        return answer.read()


@steady
def test_metrics_and_status_tell_what_was_asked_and_answered(watched):
    text = watched.page("dispatch", "/metrics")[1]
    before = metric(text, "shunt_dispatch_requests_total")
    past = metric(text, 'shunt_dispatch_answer_bytes_total{way="relayed"}'), metric(text, "shunt_dispatch_offers_total")
    for _ in range(6):
        assert len(get(watched, "/large")) == 200_000
    text = watched.page("dispatch", "/metrics")[1]
    # None was asked for twice, which needs an agent that stands still.
    expect(metric(text, "shunt_dispatch_requests_total") == before + 6, text)
    answers, offers = past
    expect(metric(text, 'shunt_dispatch_answer_bytes_total{way="relayed"}') == answers + 6 * 200_000, text)
    expect(metric(text, "shunt_dispatch_offers_total") == metric(text, 'shunt_dispatch_relayed_total{reason="off"}') == offers + 6, text)
    assert text.endswith("# EOF\n")

    def of_agents() -> list:
        return [watched.status(f"agent-{index}")["agent"] for index in range(2)]

    def relayed() -> int:
        return sum(agent["answers_relayed"] for agent in of_agents())

    # A client may have the last byte before anybody has counted the answer.
    watched.until("both count the same answers", lambda: watched.status("dispatch")["dispatcher"]["answers_relayed"] == relayed())
    agents, state = of_agents(), watched.status("dispatch")
    assert (state["ready"], state["dispatcher"]["handover"]) == (True, "off")
    backends = state["dispatcher"]["backends"]
    assert [backend["address"] for backend in backends] == [f"127.0.0.1:{port}" for port in watched.agent_ports]
    expect([backend["links"] for backend in backends] == [1, 1] and [backend["primary"] for backend in backends] == [True, False], backends)
    assert sum(backend["requests"] for backend in backends) == state["dispatcher"]["requests"]
    expect(all(agent["sessions"] == 1 and agent["upstream_connections"] >= 1 for agent in agents), agents)
    served = [metric(watched.page(f"agent-{index}", "/metrics")[1], "shunt_agent_answer_bytes_total") for index in range(2)]
    assert sum(served) >= 6 * 200_000 and all(served)


def test_a_dispatcher_without_agents_is_not_ready_and_is_ready_again_with_one(watched):
    assert watched.page("dispatch", "/readyz")[0] == watched.page("dispatch", "/healthz")[0] == 200
    for index in range(2):
        watched.signal(f"agent-{index}", signal.SIGKILL).wait()
    watched.until("it is not ready", lambda: watched.page("dispatch", "/readyz")[0] == 503)
    assert "no backend can be reached" in watched.page("dispatch", "/readyz")[1]
    assert watched.page("dispatch", "/healthz")[0] == 200, "it lives"
    watched.until("both are counted", lambda: metric(watched.page("dispatch", "/metrics")[1], "shunt_dispatch_backend_links_lost_total") == 2)
    del watched.names["agent-0"]  # stays away
    watched.start_agent(1)
    watched.until("it is ready", lambda: watched.page("dispatch", "/readyz")[0] == 200)
    links = [backend["links"] for backend in watched.status("dispatch")["dispatcher"]["backends"]]
    assert links == [0, 1]


def test_a_server_that_is_down_is_counted_where_it_was_seen(watched):
    for index in range(2):
        watched.signal(f"nginx-{index}", signal.SIGTERM).wait()
    with pytest.raises(urllib.error.HTTPError, match="502"):
        get(watched, "/large")
    assert metric(watched.page("dispatch", "/metrics")[1], "shunt_dispatch_errors_total") >= 1
    assert sum(metric(watched.page(f"agent-{index}", "/metrics")[1], "shunt_agent_failed_total") for index in range(2)) >= 2


def test_a_file_configures_both_and_check_says_what_is_wrong(tmp_path):
    key = tmp_path / "key"
    key.write_text("an example of a key for a test\n")
    key.chmod(0o600)
    file = tmp_path / "shunt.toml"

    def check(command: str, text: str, *options: str) -> tuple:
        file.write_text(text)
        done = subprocess.run([binary(), "check", command, "--config", file, *options], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    dispatch = f'listen = "127.0.0.1:0"\nbackend = ["127.0.0.1:7001", "127.0.0.1:7002"]\nkey_file = "{key}"\n'
    agent = f'listen = "127.0.0.1:0"\nupstream = "127.0.0.1:8081"\nkey_file = "{key}"\n'
    assert check("dispatch", dispatch) == (0, "valid\n")
    assert check("agent", agent) == (0, "valid\n")
    for command, text, options, expected in (
        ("dispatch", dispatch.replace("backend", "bakend"), (), "unknown key `bakend`; did you mean `backend`?"),
        ("dispatch", dispatch + 'clients_max = "many"\n', (), "`clients_max`: a number from 1"),
        ("dispatch", dispatch.replace(str(key), str(key) + "s"), (), "cannot be read"),
        ("dispatch", 'listen = "127.0.0.1:0"\n', (), "--backend"),
        ("dispatch", dispatch.replace("127.0.0.1:7002", "localhost:7001"), (), "127.0.0.1:7001 is given twice"),
        ("agent", agent + 'vip = ["192.0.2.9:80"]\n', ("--handover-pins", str(tmp_path)), "shunt switch load"),
        ("agent", agent + 'vip = ["192.0.2.9:80"]\ncores = 2\n', (), "--cores above 1"),
    ):
        code, said = check(command, text, *options)
        assert code == 2 and expected in said, said
    # What this host cannot do is done without, with a warning.
    code, said = check("dispatch", dispatch + 'handover = "auto"\n', "--handover-pins", str(tmp_path))
    assert code == 0 and "warning: all answers are relayed" in said and said.endswith("valid\n") or said.startswith("valid"), said
    file.write_text(dispatch)
    process = subprocess.Popen([binary(), "dispatch", "--config", file, "--drain-timeout-ms", "1s"], stdout=subprocess.PIPE, text=True)
    assert "listening for HTTP clients on 127.0.0.1:" in process.stdout.readline()
    process.terminate()
    assert process.wait(DEADLINE_SECONDS) == 0


@pytest.mark.skipif(bool(hosts.why_not()), reason=hosts.why_not() or "nothing is missing")
@steady
def test_bytes_past_the_dispatcher_are_counted_on_both_sides(tmp_path):
    admin = ("--admin", "127.0.0.1:9180")
    with Moved(tmp_path, agent_options=admin) as moved:
        (moved.files / "large").write_bytes(os.urandom(1_000_000))

        def page(host: str, path: str) -> str:
            address = moved.address(host) if host == "dispatcher" else "127.0.0.1"
            return moved.curl(host, f"http://{address}:9180{path}").stdout.decode()

        # Each but the last comes back because of the next request.
        done = moved.curl("client", *[word for _ in range(5) for word in ("-o", "/dev/null", moved.url("/large"))], "-o", "/dev/null", moved.url("/empty"))
        expect(done.returncode == 0, done.stderr)
        text = page("dispatcher", "/metrics")
        expect(metric(text, "shunt_dispatch_handovers_total") == metric(text, 'shunt_dispatch_handovers_ended_total{outcome="returned"}') == 5, text)
        expect(metric(text, 'shunt_dispatch_answers_total{way="handed_over"}') == 5, text)
        expect(metric(text, 'shunt_dispatch_answer_bytes_total{way="handed_over"}') > 5_000_000
               > metric(text, 'shunt_dispatch_answer_bytes_total{way="relayed"}'), text)
        for step in ("freeze", "taking", "absence", "restore"):
            expect(metric(text, f"shunt_dispatch_{step}_seconds_count") == 5, step)
        expect(metric(text, "shunt_dispatch_away") == 0, text)
        state = json.loads(page("dispatcher", "/status"))["dispatcher"]
        expect((state["handover"], state["loops_handing_over"], state["answers_handed_over"]) == ("auto", 1, 5), state)
        expect(state["microseconds"]["freeze"]["count"] == state["handovers_ended"]["returned"] == 5 and not any(state["relayed"].values()), state)
        of_agents = [page(f"backend{index}", "/metrics") for index in range(2)]
        for name in ('shunt_agent_connections_total{outcome="taken"}', 'shunt_agent_connections_left_total{outcome="returned"}',
                     'shunt_agent_answers_total{way="direct"}', "shunt_agent_first_byte_seconds_count",
                     "shunt_agent_restore_seconds_count", "shunt_agent_arrival_seconds_count", "shunt_agent_freeze_seconds_count"):
            expect(sum(metric(text, name) for text in of_agents) == 5, name)
        status = json.loads(page("backend0", "/status"))["agent"]
        assert status["vips"] == [moved.url("").removeprefix("http://")]
        expect(status["taken"] == 0, status)
