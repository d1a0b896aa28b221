"""Redis or Valkey servers with the module shunt-multiget.so, which is built when it is first wanted."""

import functools
import os
import shutil
import socket
import subprocess
from pathlib import Path

from .netmc import Client
from .ports import free_port
from .redis import Multiget, Processes

ROOT = Path(__file__).resolve().parents[2]
# With the sanitizers' build: what a test does within the server is checked by them.
SANITIZED = os.environ.get("SHUNT_MODULE") == "sanitized"


@functools.cache
def module() -> Path:
    subprocess.run(["make", "-s", "-C", ROOT / "modules/redis", "sanitized" if SANITIZED else "all"], check=True)
    return ROOT / "target/modules" / ("shunt-multiget-sanitized.so" if SANITIZED else "shunt-multiget.so")


def servers() -> list:
    """Those that are installed; SHUNT_REDIS_SERVERS names further ones, with colons between. Valkey cannot load what has sanitizers (RTLD_DEEPBIND)."""
    if SANITIZED:
        return ["redis-server"]
    more = os.environ.get("SHUNT_REDIS_SERVERS", "").split(":")
    return ["redis-server", *(server for server in (shutil.which("valkey-server"), *more) if server)]


@functools.cache
def prefix() -> list:
    """Begins the command of a server: the sanitizers' library has to be its first."""
    if not SANITIZED:
        return []
    library = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
    # What a server itself never frees is no leak of the module.
    return ["env", f"LD_PRELOAD={library}", "ASAN_OPTIONS=detect_leaks=0"]


class Server(Processes):
    """A server with the module. `options` are the module's, `server_options` the server's."""

    def __init__(self, directory: Path, options=(), server_options=(), program: str = "redis-server"):
        super().__init__(directory)
        self.program, self.options, self.server_options = program, list(options), list(server_options)
        self.port, self.datagram_port = free_port(), free_port(socket.SOCK_DGRAM)

    def command(self, *more) -> list:
        load = ["--loadmodule", module(), "port", self.datagram_port, *self.options]
        return [*prefix(), self.program, "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--dir", self.directory,
                "--enable-debug-command", "yes", "--enable-module-command", "yes", *self.server_options, *more, *load]

    def start(self, *more):
        self.run("server", self.command(*more))
        self.until(self._answers, f"port {self.port} answers", "server")

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def redis(self, **options):
        import redis

        return redis.Redis(port=self.port, **options)

    def client(self, own: str = "127.0.0.1") -> Client:
        return Client(self.datagram_port, own)

    def info(self, client=None) -> dict:
        """The module's section of INFO, without the prefix of its names."""
        section = (client or self.redis()).info("shunt_multiget")
        return {name.removeprefix("shunt_multiget_"): value for name, value in section.items()}


class MultigetByModule(Multiget):
    """A sidecar over servers with the module in place of shims."""

    def start_server(self, index: int):
        self.server_options = ["--loadmodule", module(), "port", self.shim_ports[index]]
        super().start_server(index)

    def start_shim(self, index: int):
        pass

    def run(self, name: str, command):
        super().run(name, [*prefix(), *command] if name.startswith("redis-") else command)
