"""Servers of the tests and experiments: rings of real Apache Cassandra nodes on loopback, embedded nodes, proxies.

jars.py     Cassandra's jars from Maven Central, a Java that runs them, an archive of loaded classes for fast starts
node.py     one Cassandra process: configuration, start, stop, kill -9, SIGSTOP
cluster.py  several nodes as one ring: tokens, seeds, waiting until every node sees every other one up
cql.py      a CQL client that is deliberately not a driver: one socket, no reconnect, no retry
ports.py    ports of this host for servers
proxy.py    a `shunt proxy` process
embedded.py embedded nodes, one alone or three behind a proxy
extension.py the Cassandra extension's jar
processes.py what the kernel says of a process
load.py     clients that remember every write acknowledged to them
commands.py the command line of `scripts/ring`

Only the standard library is used here, so that nothing has to be installed before a ring can start.
"""
