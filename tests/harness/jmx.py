"""Requests to nodes of Cassandra over JMX, by one Java process. nodetool would start a process for each
request, and each takes seconds of a processor."""

import select
import subprocess
from pathlib import Path

from . import jars, waits

SOURCE = Path(__file__).with_name("Jmx.java")


class Jmx:
    """Bean names are Cassandra's; an answer is text."""

    def __init__(self):
        options = ["-Xmx64M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        self._process = subprocess.Popen([str(jars.java()), *options, str(SOURCE)], text=True, bufsize=1,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def get(self, node, bean: str, attribute: str) -> str:
        return self._ask(node, "get", bean, attribute)

    def set(self, node, bean: str, attribute: str, value) -> None:
        self._ask(node, "set", bean, attribute, str(value))

    def call(self, node, bean: str, operation: str, given: "bool | str | None" = None) -> str:
        if given is None:
            return self._ask(node, "call", bean, operation)
        argument = ("boolean", str(given).lower()) if isinstance(given, bool) else ("java.lang.String", given)
        return self._ask(node, "call", bean, operation, *argument)

    def _ask(self, node, *fields: str) -> str:
        self._process.stdin.write("\t".join([str(node.settings.jmx_port), *fields]) + "\n")
        if not select.select([self._process.stdout], [], [], waits.DEADLINE_SECONDS)[0]:
            raise waits.Late(f"{node.address} says nothing by JMX: {fields}")
        outcome, _, answer = self._process.stdout.readline().rstrip("\n").partition("\t")
        if outcome != "ok":
            raise RuntimeError(f"{node.address} {fields}: {answer or 'the process of JMX ended'}")
        return answer

    def __enter__(self) -> "Jmx":
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait()
