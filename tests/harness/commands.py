"""The command line of `scripts/ring`."""

import argparse
import sys
import time

from . import cql, jars
from .cluster import Cluster


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/ring", description="Real Cassandra nodes on loopback addresses.")
    parser.add_argument("--name", default="ring", help="which ring; its files are in target/ring/NAME")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="start the nodes that do not run; wait until all see each other up")
    start.add_argument("--nodes", type=int, default=3)
    start.add_argument("--first", type=int, default=1, help="the first node is 127.0.0.FIRST")
    start.add_argument("--auth", action="store_true", help="PasswordAuthenticator and CassandraAuthorizer")
    start.add_argument("--heap-mb", type=int, default=512)
    start.add_argument("--optimise", action="store_true", help="full JIT, for measurements")
    start.add_argument("--extended", type=int, default=0, metavar="N", help="the first N nodes load the Cassandra extension")
    start.add_argument("--fleeting", action="store_true", help="quick changes of the schema; its nodes cannot be restarted")
    start.add_argument("--wipe", action="store_true", help="begin without data")
    stop = commands.add_parser("stop", help="stop the nodes of every ring, or of the one named")
    stop.add_argument("--wipe", action="store_true", help="delete their data too")
    commands.add_parser("status", help="what runs")
    commands.add_parser("prepare", help="fetch Cassandra and record its classes, without starting a ring")
    commands.add_parser("join", help="start one more node and wait until it has joined")
    for name, text in (("kill", "kill -9 a node"), ("pause", "SIGSTOP a node"), ("resume", "SIGCONT a node"),
                       ("restart", "stop a node, if it runs, and start it again")):
        commands.add_parser(name, help=text).add_argument("node", type=int, help="1 is the first node")
    nodetool = commands.add_parser("nodetool", help="run nodetool against a node")
    nodetool.add_argument("node", type=int)
    nodetool.add_argument("rest", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    try:
        return _run(options, "--name" in (arguments or sys.argv))
    except (jars.MissingTool, RuntimeError) as error:
        print(f"ring: {error}", file=sys.stderr)
        return 1


def _run(options, named: bool) -> int:
    if options.command == "prepare":
        jars.library(), jars.class_archive()
        return 0
    if options.command == "start":
        return _start(options)
    if options.command == "stop" and not named:
        for cluster in Cluster.all():
            cluster.stop(options.wipe)
        return 0
    if options.command == "status" and not named:
        return max([_status(cluster) for cluster in Cluster.all()], default=0)
    cluster = Cluster.load(options.name)
    if cluster is None:
        print(f"ring: there is no ring named {options.name}", file=sys.stderr)
        return 1
    return _on(cluster, options)


def _start(options) -> int:
    begun = time.monotonic()
    cluster = Cluster.load(options.name) if not options.wipe else None
    wipe = options.wipe
    if cluster is not None and cluster.fleeting and not any(node.pid() for node in cluster.nodes):
        cluster, wipe = None, True  # its schema may not be on the disk, and whoever comes now may want a ring that lasts
    if cluster is None:
        cluster = Cluster(options.name, options.nodes, options.first, options.auth, options.heap_mb, options.optimise,
                          options.extended, options.fleeting)
    cluster.start(wipe)
    print(f"ring {cluster.name}: Cassandra {jars.cassandra_version()} on {cluster.contacts}, "
          f"ready after {time.monotonic() - begun:.0f} s")
    return 0


def _status(cluster: Cluster) -> int:
    down = 0
    for node in cluster.nodes:
        pid, answers = node.pid(), cql.answers(node.address, node.settings.cql_port)
        down += not answers
        print(f"{cluster.name} {node.contact} pid {pid or '-'} {'answers' if answers else 'does not answer'}")
    return 1 if down else 0


def _on(cluster: Cluster, options) -> int:
    if options.command == "stop":
        cluster.stop(options.wipe)
    elif options.command == "status":
        return _status(cluster)
    elif options.command == "join":
        cluster.join().wait_ready()
        cluster.wait_up()
    elif options.command == "nodetool":
        result = cluster.nodetool(options.node, *options.rest)
        print(result.stdout, end="")
        print(result.stderr, end="", file=sys.stderr)
        return result.returncode
    else:
        node = cluster.nodes[options.node - 1]
        if options.command == "restart":
            node.stop()
            node.start()
            node.wait_ready()
            cluster.wait_up()
        else:
            getattr(node, options.command)()
    return 0
