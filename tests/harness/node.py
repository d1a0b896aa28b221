"""One Cassandra process on a loopback address."""

import os
import re
import signal
import ssl
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from . import cql, jars, processes, waits

CQL_PORT = 19042
STORAGE_PORT = 17000
READY_TIMEOUT_SECONDS = 400
ENDS_WITHIN_SECONDS = 180  # after SIGKILL: the kernel may have to wait for a disk first


@dataclass
class Settings:
    """Differences between one node and another."""

    cluster: str
    address: str
    directory: Path
    seeds: list
    tokens: list
    authentication: bool = False
    patient: bool = False  # has minutes for what others have seconds; for tests that neither stop nor pause a node
    authenticator: str = ""  # with its parameters, as in cassandra.yaml; without it, by `authentication`
    bootstrap: bool = False  # stream its data from the others before it serves
    replicas_of_system: int = 1
    cql_port: int = CQL_PORT
    heap_mb: int = 512
    optimise: bool = False  # the full JIT: slower start, faster afterwards; for measurements
    use_archive: bool = True
    agent: str = ""  # the Java option that loads the extension; without it the node is stock Cassandra
    java_options: list = field(default_factory=list)
    storage: Path = None  # for data and logs, if not in `directory`
    more_yaml: str = ""  # appended to cassandra.yaml
    tls: ssl.SSLContext = None  # how a client connects, if not in clear text

    @property
    def number(self) -> int:
        return int(self.address.rsplit(".", 1)[1])

    @property
    def jmx_port(self) -> int:
        """JMX listens on 127.0.0.1 for every node, so the port must tell them apart."""
        return 17100 + self.number


# Several nodes and their tests share few cores: give a slow answer the time to arrive.
REQUEST_TIMES = """\
write_request_timeout: 5000ms
counter_write_request_timeout: 5000ms
cas_contention_timeout: 3000ms
"""
# These times only end a test. A proxy waits for longer, and a driver for longer than the proxy. While
# the requests of one address have more bytes than that, the node reads nothing from it.
PATIENT_TIMES = """\
read_request_timeout: 60s
range_request_timeout: 60s
write_request_timeout: 60s
counter_write_request_timeout: 60s
cas_contention_timeout: 60s
truncate_request_timeout: 120s
request_timeout: 60s
native_transport_timeout: 120s
native_transport_max_request_data_in_flight: 128MiB
native_transport_max_request_data_in_flight_per_ip: 128MiB
internode_tcp_connect_timeout: 30s
internode_tcp_user_timeout: 120s
phi_convict_threshold: 16
"""


def yaml_of(settings: Settings) -> str:
    directory = settings.storage or settings.directory
    password = settings.authentication
    return f"""\
cluster_name: {settings.cluster}
num_tokens: {len(settings.tokens)}
initial_token: {",".join(str(token) for token in settings.tokens)}
auto_bootstrap: {str(settings.bootstrap).lower()}
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
listen_address: {settings.address}
rpc_address: {settings.address}
native_transport_port: {settings.cql_port}
storage_port: {STORAGE_PORT}
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "{",".join(f"{seed}:{STORAGE_PORT}" for seed in settings.seeds)}"}}]
data_file_directories: [{directory}/data]
commitlog_directory: {directory}/commitlog
saved_caches_directory: {directory}/saved_caches
hints_directory: {directory}/hints
cdc_raw_directory: {directory}/cdc_raw
# kill -9 of the process loses nothing that was acknowledged: the log is written before the answer, only its fsync waits.
commitlog_sync: periodic
commitlog_sync_period: 10000ms
commitlog_segment_size: 16MiB
authenticator: {settings.authenticator or ("PasswordAuthenticator" if password else "AllowAllAuthenticator")}
authorizer: {"CassandraAuthorizer" if password else "AllowAllAuthorizer"}
role_manager: CassandraRoleManager
permissions_validity: {"0ms" if password else "2000ms"}
roles_validity: {"0ms" if password else "2000ms"}
credentials_validity: {"0ms" if password else "2000ms"}
storage_compatibility_mode: NONE
auto_snapshot: false
paxos_variant: v2
{PATIENT_TIMES if settings.patient else REQUEST_TIMES}\
file_cache_size: 64MiB
networking_cache_size: 32MiB
memtable_heap_space: 96MiB
memtable_offheap_space: 96MiB
memtable_allocation_type: offheap_objects
concurrent_reads: 16
concurrent_writes: 16
concurrent_counter_writes: 8
concurrent_compactors: 1
native_transport_max_threads: 32
{settings.more_yaml}"""


def java_command(settings: Settings) -> list:
    options = [line for line in (jars.HERE / "jvm17.options").read_text().splitlines() if line and line[0] != "#"]
    command = ["nice", "-n", "5", str(jars.java()), *options, "-Xss512k", "-Xms128M", f"-Xmx{settings.heap_mb}M",
               "-XX:+UseSerialGC", "-XX:+PerfDisableSharedMem", "-XX:+ExitOnOutOfMemoryError", "-Xlog:cds=off"]
    if not settings.optimise:
        command.append("-XX:TieredStopAtLevel=1")
    if settings.use_archive:
        command.append(f"-XX:SharedArchiveFile={jars.class_archive()}")
    properties = {
        "cassandra.config": f"file://{settings.directory}/cassandra.yaml",
        "cassandra.storagedir": settings.storage or settings.directory,
        "cassandra.jmx.local.port": settings.jmx_port,
        "logback.configurationFile": jars.HERE / "logback.xml",
        "cassandra-foreground": "yes",
        # A loopback ring needs none of the waiting that keeps a large one safe, but for a node that joins under load: until all
        # know that it does, a write may be acknowledged without it, and a read at QUORUM through it then misses that write.
        "cassandra.ring_delay_ms": 15000 if settings.bootstrap else 3000,
        "cassandra.skip_wait_for_gossip_to_settle": 0,
        "cassandra.superuser_setup_delay_ms": 0,
        "cassandra.role_password_update_min_interval_in_ms": 0,
        "cassandra.shutdown_announce_in_ms": 200,
        "cassandra.memtable.row_overhead_size": 180,  # what its own measurement at every start finds
        "cassandra.consistent.rangemovement": "true" if settings.bootstrap else "false",
        "cassandra.system_distributed.default_rf": settings.replicas_of_system,
        "cassandra.system_traces.default_rf": min(2, settings.replicas_of_system),
        "cassandra.available_processors": 2,
        "io.netty.eventLoopThreads": 4,
    }
    command += [f"-D{name}={value}" for name, value in properties.items()] + settings.java_options
    command += [settings.agent] if settings.agent else []
    return [*command, "-cp", f"{jars.library()}/*", "org.apache.cassandra.service.CassandraDaemon"]


class Node:
    """A process that is found again through its pid file, so that one command may start it and another one stop it."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.directory = settings.directory
        self.log = self.directory / "node.log"
        self._process = None  # only in the program that started it

    @property
    def address(self) -> str:
        return self.settings.address

    @property
    def contact(self) -> str:
        return f"{self.settings.address}:{self.settings.cql_port}"

    def pid(self) -> int | None:
        """The process id, or None if it does not run. A recycled number does not count."""
        if self._process is not None:
            if self._process.poll() is None:
                return self._process.pid
            self._process = None
        try:
            pid = int((self.directory / "pid").read_text())
            with open(f"/proc/{pid}/cmdline", "rb") as command:
                return pid if f"file://{self.directory}/".encode() in command.read() else None
        except (OSError, ValueError):
            return None

    def state(self) -> str | None:
        """The kernel's letter for the state of the process (proc(5)); "T" is stopped by a signal."""
        try:
            return Path(f"/proc/{self.pid()}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return None

    def start(self) -> None:
        """Starts the process if it does not run; does not wait for it."""
        if self.pid():
            return
        if cql.answers(self.address, self.settings.cql_port, tls=self.settings.tls):
            raise RuntimeError(f"something else answers CQL on {self.contact} already")
        command = java_command(self.settings)
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "cassandra.yaml").write_text(yaml_of(self.settings))
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(command, cwd=self.directory, stdin=subprocess.DEVNULL,
                                             stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        (self.directory / "pid").write_text(str(self._process.pid))

    def wait_ready(self, timeout_seconds: float = READY_TIMEOUT_SECONDS) -> None:
        """Returns once the node answers CQL."""
        try:
            waits.until(self._ready, f"{self.address} answers CQL", timeout_seconds, 0.2)
        except waits.Late as late:
            raise waits.NotReady(f"{late}; the end of {self.log}:\n{self.log_tail()}") from None

    def _ready(self) -> bool:
        if cql.answers(self.address, self.settings.cql_port, tls=self.settings.tls):
            return True
        if not self.pid():
            raise RuntimeError(f"{self.address} ended while starting; the end of {self.log}:\n"
                               f"{self.log_tail()}")
        return False

    def signal(self, number: int) -> None:
        pid = self.pid()
        if pid is None:
            raise RuntimeError(f"{self.address} does not run")
        os.kill(pid, number)

    def stop(self, timeout_seconds: float = 120) -> None:
        """SIGTERM, and SIGKILL for one that does not end in time. A paused one is killed at once."""
        if self.pid() is None:
            return
        if self.state() != "T":
            self.signal(signal.SIGTERM)
            if self._ended(timeout_seconds):
                return
        self.kill()

    def kill(self) -> None:
        """kill -9, and waits until the process is gone."""
        if self.pid() is None:
            return
        self.signal(signal.SIGKILL)
        if not self._ended(ENDS_WITHIN_SECONDS):
            raise waits.NotReady(f"{self.address}: process {self.pid()} survives SIGKILL")

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        pid = self.pid()
        if pid is None:
            raise RuntimeError(f"{self.address} does not run")
        processes.stop(pid)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def wrote(self, text: str) -> bool:
        """True if that is in the log of this node."""
        return self.log.is_file() and text in self.log.read_text(errors="replace")

    def has_down(self, other: "Node") -> bool:
        """True if this node's log said last of another one that it is down."""
        said = re.findall(rf"/{re.escape(other.address)}:\d+ is now (UP|DOWN)",
                          self.log.read_text(errors="replace"))
        return said[-1:] == ["DOWN"]

    def log_tail(self, lines: int = 40) -> str:
        if not self.log.is_file():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _ended(self, timeout_seconds: float) -> bool:
        try:
            waits.until(lambda: self.pid() is None, f"{self.address} has ended", timeout_seconds, 0.05)
        except waits.Late:
            return False
        (self.directory / "pid").unlink(missing_ok=True)
        return True
