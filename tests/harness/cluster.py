"""Several nodes as one ring, found again from files so that separate commands can work on it."""

import json
import shutil
import subprocess
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import addresses, cql, extension, jars, waits
from .node import Node, Settings

STATE = jars.TARGET / "ring"
TOKENS_PER_NODE = 8
NODES_PLANNED = 3  # the fixed tokens divide the ring evenly between so many nodes
SUPERUSER = ("cassandra", "cassandra")
# A file system in memory, and what has to be free there: of a ring that does not last no file needs a disk.
MEMORY, MEMORY_BYTES = Path("/dev/shm"), 3 << 30
# No change of the schema is flushed, and no system table at a DROP or TRUNCATE: that is most of their time.
FLEETING = ["-Dcassandra.test.flush_local_schema_changes=false", "-Dcassandra.unsafesystem=true"]


def tokens_of(index: int, total: int) -> list:
    """Evenly spread, interleaved tokens. Nodes beyond the planned ones halve every gap of one planned node's.

    Fixed tokens let the first nodes start at the same time: nobody has to learn the others' tokens before choosing.
    """
    planned = max(total, 1) if total < NODES_PLANNED else NODES_PLANNED
    slots = planned * TOKENS_PER_NODE
    step = 2**64 // slots
    first = index % planned * step
    offset = step * (index // planned) // 2
    return [-(2**63) + 1 + first + offset + planned * step * turn for turn in range(TOKENS_PER_NODE)]


class Cluster:
    """A ring named `name` whose nodes are at 127.0.0.first, first + 1, ... or in another `network`, whose addresses this
    host must have. Without `first` the addresses are those that belong to the name. Its files are in target/ring/<name>.

    The first `extended` nodes, joined ones counted too, load the Cassandra extension. With `in_memory` the nodes' files
    are there, if there is room: they outlive the nodes, not the machine. A `fleeting` ring is so too, and flushes no
    change of its schema, so that its nodes must not be restarted. The nodes of a `patient` one give up
    nothing before a minute has passed; a test about nodes that stand still needs others.
    """

    def __init__(self, name: str = "ring", nodes: int = 3, first: int = None, authentication: bool = False,
                 heap_mb: int = 512, optimise: bool = False, extended: int = 0, fleeting: bool = False,
                 network: str = "127.0.0", in_memory: bool = False, patient: bool = False):
        self.directory = STATE / name
        self.name, self.authentication = name, authentication
        self.first = addresses.first_of(name, nodes) if first is None else first
        self.heap_mb, self.optimise, self.planned, self.extended = heap_mb, optimise, nodes, extended
        self.fleeting, self.network, self.in_memory = fleeting, network, in_memory or fleeting
        self.patient = patient
        # Whoever loads the ring finds the same: two checkouts have rings of the same name.
        self._memory = MEMORY / f"shunt-ring-{name}-{zlib.crc32(str(self.directory).encode()):08x}"
        self.nodes = [self._node(index) for index in range(nodes)]

    @classmethod
    def load(cls, name: str) -> "Cluster | None":
        """The ring as it was started by this or another program."""
        try:
            state = json.loads((STATE / name / "cluster.json").read_text())
        except OSError:
            return None
        joined = state.pop("joined")
        cluster = cls(name, **state)
        cluster.nodes += [cluster._node(cluster.planned + index) for index in range(joined)]
        return cluster

    @classmethod
    def all(cls) -> list:
        return [cls.load(path.parent.name) for path in sorted(STATE.glob("*/cluster.json"))]

    def save(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "cluster.json").write_text(json.dumps({
            "nodes": self.planned, "first": self.first, "authentication": self.authentication,
            "heap_mb": self.heap_mb, "optimise": self.optimise, "extended": self.extended,
            "fleeting": self.fleeting, "network": self.network, "in_memory": self.in_memory,
            "patient": self.patient,
            "joined": len(self.nodes) - self.planned}))

    def _node(self, index: int) -> Node:
        seeds = [f"{self.network}.{self.first + seed}" for seed in range(self.planned)]
        return Node(Settings(
            cluster=self.name, address=f"{self.network}.{self.first + index}", directory=self.directory / f"node{index + 1}",
            seeds=seeds, tokens=tokens_of(index, self.planned), authentication=self.authentication,
            patient=self.patient, bootstrap=index >= self.planned, replicas_of_system=min(3, self.planned),
            heap_mb=self.heap_mb, optimise=self.optimise, agent=extension.agent() if index < self.extended else "",
            java_options=[*FLEETING] if self.fleeting else [], storage=self._storage(index)))

    def _storage(self, index: int) -> "Path | None":
        """The directory with the files of a node; None for the node's own directory."""
        if not self.in_memory or not MEMORY.is_dir():
            return None
        roomy = self._memory.is_dir() or shutil.disk_usage(MEMORY).free >= MEMORY_BYTES
        return self._memory / f"node{index + 1}" if roomy else None

    @property
    def contacts(self) -> str:
        return ",".join(node.contact for node in self.nodes)

    @property
    def credentials(self):
        return SUPERUSER if self.authentication else None

    def start(self, wipe: bool = False) -> None:
        """Starts every node that does not run, and returns when all see each other up. Data stays, unless wiped."""
        if wipe:
            self.stop(wipe=True)
        self.save()
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_ready()
        self.wait_up()

    def join(self) -> Node:
        """Starts one more node, which takes its share of the data from the others first. Does not wait for it."""
        node = self._node(len(self.nodes))
        self.nodes.append(node)
        self.save()
        node.start()
        return node

    def stop(self, wipe: bool = False) -> None:
        """In good order, or with kill -9 where nobody sees the data again: that takes no seconds."""
        end = Node.kill if wipe or self.fleeting else Node.stop
        with ThreadPoolExecutor(len(self.nodes)) as together:
            list(together.map(end, self.nodes))
        if wipe or self.fleeting:
            shutil.rmtree(self._memory, ignore_errors=True)
        if wipe:
            shutil.rmtree(self.directory, ignore_errors=True)

    def wait_up(self, timeout_seconds: float = 300) -> None:
        """Until every running node knows all the others and has every one of them up, and all agree on the schema."""
        problem = None

        def complete() -> bool:
            nonlocal problem
            problem = self._problem()
            return problem is None

        try:
            waits.until(complete, f"ring {self.name} is complete", timeout_seconds, 0.3)
        except waits.Late as late:
            raise waits.NotReady(f"{late}: {problem}") from None

    def wait_down(self, node: Node) -> None:
        """Until every other node that runs has that one for down, though its process may be there."""
        others = [other for other in self.nodes if other is not node and other.pid()]
        waits.until(lambda: all(other.has_down(node) for other in others),
                    f"{node.address} is down to all others",
                    told=lambda: "\n".join(other.log_tail(10) for other in others))

    def _problem(self) -> str | None:
        running = [node for node in self.nodes if node.pid()]
        schemas = set()
        for node in running:
            try:
                with cql.Session(node.address, node.settings.cql_port, self.credentials) as session:
                    peers = len(session.query("SELECT peer FROM system.peers_v2"))
                    if peers != len(running) - 1:
                        return f"{node.address} knows {peers} other nodes"
                    # Spans all token ranges and asks every replica of each, so it is refused while a node is down.
                    session.query("SELECT id FROM system_distributed.repair_history LIMIT 1", cql.ALL)
                    schemas.add(session.query("SELECT schema_version FROM system.local")[0]["schema_version"])
            except (OSError, TimeoutError, cql.ConnectionLost, cql.CqlError) as error:
                return f"{node.address}: {error!r}"
        return None if len(schemas) <= 1 else "the nodes' schemas differ"

    def nodetool(self, number: int, *arguments: str) -> subprocess.CompletedProcess:
        """Runs nodetool against the node with that number, counted from 1."""
        node = self.nodes[number - 1]
        options = [line for line in (jars.HERE / "jvm17.options").read_text().splitlines() if line.startswith("--")]
        return subprocess.run([
            str(jars.java()), *options, "-Xmx96M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
            f"-Dcassandra.storagedir={self.directory}/nodetool", f"-Dcassandra.config=file://{node.directory}/cassandra.yaml",
            f"-Dlogback.configurationFile={jars.HERE / 'logback-tools.xml'}", "-cp", f"{jars.library()}/*",
            "org.apache.cassandra.tools.NodeTool", "-p", str(node.settings.jmx_port), *arguments],
            text=True, capture_output=True)
