"""Stock nginx servers, an agent beside each, and a dispatcher in front, all on loopback."""

import functools
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from .ports import free_port
from .proxy import binary
from .waits import Late, unpaused, until

# True in the form that `make test-long` runs, which has more of the same.
IS_WHOLE = "SHUNT_DISPATCH_WHOLE" in os.environ
# Half of the shortest fixed limit: an agent has 6 s to take a connection, it may be silent for 10 s, and an answer
# is offered for 10 s.
PAUSE_SECONDS = 3
# Words of a log that say that one of these limits was passed.
GIVEN_UP = ("nothing has come", "not take a connection", "does not answer", "giving up a link to a node")
# The directories with the logs of all processes that a test run has started.
DIRECTORIES = set()

NGINX = """
{user}
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    client_max_body_size 64m;
    keepalive_requests 50;
    default_type application/octet-stream;
    server {{
        listen {listen}:{port};
        root {files};
        add_header X-Server {name} always;
        location / {{ }}
        location /chunked/ {{ alias {files}/; ssi on; ssi_types *; }}
        location /untagged/ {{ alias {files}/; etag off; }}
        location /empty {{ return 204; }}
        location /put/ {{ dav_methods PUT DELETE; create_full_put_path on; }}
        location /closed {{ keepalive_timeout 0; return 200 "closed"; }}
    }}
}}
"""


def why_not() -> str:
    """The programs that are missing, or an empty text."""
    missing = [name for name in ("nginx", "curl") if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin") is None]
    return f"{', '.join(missing)} missing: scripts/prerequisites net" if missing else ""


class Undone(Exception):
    """Something did not happen, or did not finish, but nothing was wrong as far as it went."""


def expect(holds, told="") -> None:
    """Raises Undone unless `holds`, which a process that stands still may prevent. `assert` is for all that no pause excuses."""
    if not holds:
        raise Undone(str(told))


def expect_whole(code: int, received: bytes, wanted: bytes, told="") -> None:
    """Expects that a client ended with 0 and has all that it asked for. Asserts that the part it has is right in any case."""
    assert wanted.startswith(received), (code, len(received), len(wanted), str(told)[-1500:])
    expect((code, len(received)) == (0, len(wanted)), (code, len(received), len(wanted), str(told)[-1500:]))


def again_if_paused(test):
    """Runs a test again if it was `Undone`, or otherwise had no answer, while the machine stood still."""

    @functools.wraps(test)
    def run(*arguments, **named):
        return unpaused(lambda: test(*arguments, **named), PAUSE_SECONDS)

    return run


def given_up() -> int:
    """Number of processes that were given up because they were silent for too long."""
    logs = [log.read_text(errors="replace") for directory in DIRECTORIES for log in directory.glob("*.log")]
    return sum(log.count(said) for log in logs for said in GIVEN_UP)


def steady(test):
    """Does the same as `again_if_paused`. If the machine did not stand still but a silent process was given up, the test is
    `Late`. Tests that make a process stand still cannot use it."""

    @functools.wraps(test)
    def run(*arguments, **named):
        before = given_up()
        try:
            return test(*arguments, **named)
        except Undone as undone:
            if given_up() > before:
                raise Late(f"a process stood still, and was given up: {undone}") from undone
            raise

    return again_if_paused(run)


class Relay:
    """Servers, agents and a dispatcher; all are ended with it."""

    # Where servers listen.
    listen = "127.0.0.1"

    def __init__(self, directory: Path, servers: int = 2, dispatch_options=(), agent_options=(), shares_socket: bool = False):
        """`shares_socket`: connections are handed over, within this host."""
        self.directory, self.processes, self.names = directory, [], {}
        DIRECTORIES.add(directory)
        self.files = directory / "files"
        self.files.mkdir(parents=True, exist_ok=True)
        (self.files / "put").mkdir(exist_ok=True)
        self.key = directory / "key"
        self.key.write_text("an example of a key for a test\n")
        self.key.chmod(0o600)
        self.server_ports = [free_port() for _ in range(servers)]
        self.agent_ports = [free_port() for _ in range(servers)]
        self.port = free_port()
        self.dispatch_options, self.agent_options = list(dispatch_options), list(agent_options)
        if shares_socket:
            shared = ["--handover-socket", directory / "connections"]
            self.dispatch_options += [*shared, "--handover", "auto"]
            self.agent_options += [*shared, "--vip", f"127.0.0.1:{self.port}"]

    def __enter__(self):
        try:
            for index in range(len(self.server_ports)):
                self.start_server(index)
                self.start_agent(index)
            self.start_dispatcher()
            self.wait_until_it_answers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # An nginx that is killed leaves its workers. The others are killed: a drain has tests of its own, and here it
        # would wait for clients that a test has left.
        servers = [process for name, process in self.names.items() if name.startswith("nginx")]
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate() if process in servers else process.kill()
        for process in reversed(self.processes):
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def wait_until_it_answers(self):
        """A dispatcher that has just started has to connect to agents first."""
        self._await(lambda: self._status("/empty") == 204, "the dispatcher answers")

    def start_server(self, index: int):
        home = self.directory / f"nginx-{index}"
        home.mkdir(exist_ok=True)
        # Its workers read what the test wrote, whoever that is.
        user = "user root;" if os.geteuid() == 0 else ""
        text = NGINX.format(listen=self.listen, user=user, directory=home, port=self.server_ports[index], files=self.files, name=f"server-{index}")
        (home / "nginx.conf").write_text(text)
        self._run(f"nginx-{index}", [shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"), "-p", str(home),
                                     "-e", str(home / "error.log"), "-c", str(home / "nginx.conf")])
        self._await_port(self.server_ports[index])

    def start_agent(self, index: int):
        self._run(f"agent-{index}", [binary(), "agent", "--listen", f"127.0.0.1:{self.agent_ports[index]}",
                                     "--upstream", f"127.0.0.1:{self.server_ports[index]}", "--protocol", "http",
                                     "--key-file", self.key, *self.agent_options])
        self._await_port(self.agent_ports[index])

    def start_dispatcher(self):
        backends = [f"127.0.0.1:{port}" for port in self.agent_ports]
        self._run("dispatch", [binary(), "dispatch", "--listen", f"127.0.0.1:{self.port}", "--backend", *backends,
                               "--key-file", self.key, *self.dispatch_options])
        self._await_port(self.port)

    def signal(self, name: str, number: int = signal.SIGTERM) -> subprocess.Popen:
        """Sends a signal to a process by its name."""
        self.names[name].send_signal(number)
        return self.names[name]

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def direct(self, path: str) -> str:
        """The URL of the same path at the first server."""
        return f"http://127.0.0.1:{self.server_ports[0]}{path}"

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def _status(self, path: str) -> int:
        command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "60", self.url(path)]
        return int(subprocess.run(command, capture_output=True, text=True, check=False).stdout or 0)

    def _run(self, name: str, command):
        with open(self.directory / f"{name}.log", "ab") as log:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append(process)
        self.names[name] = process

    def _await_port(self, port: int):
        def listens():
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0
        self._await(listens, f"somebody listens on {port}")

    def _await(self, condition, what: str):
        """Waits for something as long as all processes run."""

        def holds():
            ended = [name for name, process in self.names.items() if process.poll() is not None]
            if ended:
                raise RuntimeError(f"{what}: {ended} ended\n{self._logs()}")
            return condition()

        until(holds, what, every_seconds=0.05, told=self._logs)

    def _logs(self) -> str:
        return "\n".join(f"{path.name}:\n{path.read_text()[-2000:]}" for path in self.directory.glob("*.log"))
