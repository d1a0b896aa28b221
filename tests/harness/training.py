"""The short life of a node whose only purpose is to record which classes a node loads (jars.class_archive)."""

import shutil
from pathlib import Path

from . import addresses, cql, jars
from .node import Node, Settings

ADDRESS = f"127.0.0.{addresses.first_of('training')}"


def record(archive: Path) -> None:
    directory = jars.home() / "training"
    shutil.rmtree(directory, ignore_errors=True)
    partial = archive.with_suffix(".partial")
    node = Node(Settings(cluster="training", address=ADDRESS, directory=directory, seeds=[ADDRESS],
                         tokens=[0], java_options=[f"-XX:ArchiveClassesAtExit={partial}"], use_archive=False))
    node.start()
    try:
        node.wait_ready()
        with cql.Session(ADDRESS, node.settings.cql_port) as session:
            for statement in (
                "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
                "CREATE TABLE k.t (a int PRIMARY KEY, b text)",
                "INSERT INTO k.t (a, b) VALUES (1, 'x')",
                "UPDATE k.t SET b = 'y' WHERE a = 1 IF b = 'x'",
                "SELECT * FROM k.t",
            ):
                session.query(statement)
    finally:
        node.stop(timeout_seconds=120)
    if partial.is_file():
        partial.rename(archive)
    shutil.rmtree(directory, ignore_errors=True)
