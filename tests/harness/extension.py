"""The Cassandra extension's jar, built by Maven when its sources are newer."""

import shutil
import subprocess
from pathlib import Path

from . import jars

PROJECT = jars.ROOT / "java" / "cassandra-extension"
JAR = PROJECT / "target" / "shunt-cassandra-extension.jar"
AGGREGATE_PORT = 19142  # beside cql_port; the default 9142 might be a real node's


def jar() -> Path:
    """The built jar; its own tests run elsewhere."""
    sources = [PROJECT / "pom.xml", jars.ROOT / "java" / "pom.xml", *(PROJECT / "src" / "main").rglob("*")]
    if JAR.is_file() and JAR.stat().st_mtime >= max(path.stat().st_mtime for path in sources):
        return JAR
    maven = shutil.which("mvn")
    if maven is None:
        raise jars.MissingTool("Maven is missing. Debian: apt-get install maven")
    log = jars.TARGET / "extension-build.log"
    log.parent.mkdir(exist_ok=True)
    with open(log, "w") as output:
        built = subprocess.run([maven, "--batch-mode", "--no-transfer-progress", "-f", PROJECT / "pom.xml", "-DskipTests",
                                "package"], stdout=output, stderr=subprocess.STDOUT)
    if built.returncode != 0:
        raise jars.MissingTool(f"the Cassandra extension could not be built:\n{log.read_text()[-3000:]}")
    return JAR


def agent(options: str = "", port: int = AGGREGATE_PORT, file: Path = None) -> str:
    """The Java option that loads the extension, as an operator would write it into jvm-server.options."""
    given = f"port={port}" + (f",{options}" if options else "")
    return f"-javaagent:{file or jar()}={given}"
