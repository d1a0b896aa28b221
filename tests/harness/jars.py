"""Cassandra's jars, a Java that runs them, and an archive of loaded classes that halves the time of a start.

Everything lands below target/cassandra-<version>/ and is made once.
"""

import fcntl
import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = ROOT / "target"
JAVA_SUPPORTED = (17, 11)  # Cassandra 5.0's NEWS.txt; 17 is preferred


class MissingTool(Exception):
    """Something has to be installed first; the message says what."""


def cassandra_version() -> str:
    """The version pinned in java/pom.xml, the only place that names it."""
    return re.search(r"<cassandra.version>([^<]+)<", (ROOT / "java" / "pom.xml").read_text())[1]


def home() -> Path:
    return TARGET / f"cassandra-{cassandra_version()}"


def java() -> Path:
    """A Java executable of a version which Cassandra supports."""
    homes = [os.environ.get("SHUNT_JAVA_HOME"), os.environ.get("JAVA_HOME")]
    on_path = shutil.which("java")
    if on_path:
        homes.append(Path(on_path).resolve().parent.parent)
    homes += sorted(Path("/usr/lib/jvm").glob("*")) if Path("/usr/lib/jvm").is_dir() else []
    found = {}
    for candidate in filter(None, homes):
        executable = Path(candidate) / "bin" / "java"
        release = Path(candidate) / "release"
        if executable.is_file() and release.is_file():
            version = re.search(r'JAVA_VERSION="(\d+)', release.read_text())
            if version:
                found.setdefault(int(version[1]), executable)
    for version in JAVA_SUPPORTED:
        if version in found:
            return found[version]
    raise MissingTool(
        f"Cassandra {cassandra_version()} needs Java 17 or 11; found {sorted(found) or 'none'}. "
        "Debian: apt-get install openjdk-17-jdk-headless; elsewhere set SHUNT_JAVA_HOME."
    )


@contextmanager
def _lock(name: str):
    """One process at a time makes the jars; others wait for it."""
    TARGET.mkdir(exist_ok=True)
    with open(TARGET / f".{name}.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def library() -> Path:
    """The directory of Cassandra's jars, resolved by Maven on first use."""
    return copied(HERE / "pom.xml", home() / "lib", "Cassandra")


def copied(pom: Path, done: Path, name: str) -> Path:
    """The directory `done`, with the jars of what a Maven project needs to run, resolved on first use."""
    if done.is_dir():
        return done
    with _lock(f"{name.lower()}-jars"):
        if done.is_dir():
            return done
        maven = shutil.which("mvn")
        if maven is None:
            raise MissingTool("Maven is missing. Debian: apt-get install maven")
        partial = done.with_name(f"{done.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        done.parent.mkdir(parents=True, exist_ok=True)
        log = done.with_name("maven.log")
        with open(log, "w") as output:
            result = subprocess.run(
                [maven, "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={partial}", "-DincludeScope=runtime"],
                stdout=output, stderr=subprocess.STDOUT)
        if result.returncode != 0:
            raise MissingTool(f"Maven could not resolve {name}'s jars:\n{log.read_text()[-3000:]}")
        partial.rename(done)
    return done


def class_archive() -> Path:
    """A class-data archive of a started node. A start with it costs 6 s of CPU instead of 9.

    Made by starting one node, asking it a few queries and stopping it. The Java virtual machine itself checks that the
    archive fits the class path and the Java version and ignores it otherwise.
    """
    version = re.search(r'JAVA_RUNTIME_VERSION="([^"]+)"|JAVA_VERSION="([^"]+)"',
                        (java().parent.parent / "release").read_text())
    archive = home() / f"classes-{version[1] or version[2]}.jsa"
    if archive.is_file():
        return archive
    library()
    with _lock("cassandra-classes"):
        if not archive.is_file():
            from . import training  # imports the rest of this package
            training.record(archive)
    return archive
