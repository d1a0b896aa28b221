"""Connecting: what the driver negotiates and what it sees of the ring."""

import pytest

from harness.driver import ANSWER_SECONDS


def test_queries_may_take_as_long_as_on_a_busy_machine(session):
    """The limit of an execution profile replaces that of its session."""
    future = session.execute_async("SELECT key FROM system.local")
    assert future.timeout == ANSWER_SECONDS
    future.result()


def test_connects_with_the_version_and_compression_asked_for(cluster, session, version):
    """lz4 is the driver's first choice among what OPTIONS offers."""
    assert cluster.protocol_version == version
    for pool in session.get_pools():
        assert pool._connection._compression_type == "lz4"


def test_negotiates_down_to_a_version_the_ring_speaks(connect):
    """By default the driver begins with versions Cassandra has never heard of; the error makes it step down to v5."""
    cluster = connect()
    row = cluster.connect().execute("SELECT release_version FROM system.local").one()
    assert cluster.protocol_version == 5
    assert row.release_version.startswith("5.0.")


def test_speaks_version_three(connect):
    cluster = connect(version=3)
    rows = cluster.connect().execute("SELECT keyspace_name FROM system_schema.keyspaces").all()
    assert cluster.protocol_version == 3
    assert "system" in {row.keyspace_name for row in rows}


def test_snappy_on_version_four(connect):
    session = connect(version=4, compression="snappy").connect()
    assert len(session.execute("SELECT keyspace_name FROM system_schema.columns").all()) > 100


def test_without_compression(connect, version):
    session = connect(version, compression=False).connect()
    assert len(session.execute("SELECT keyspace_name FROM system_schema.columns").all()) > 100


def test_the_driver_sees_one_host_and_it_is_the_proxy(backend, cluster, session):
    if not backend.through_proxy:
        pytest.skip("connected to a node directly")
    hosts = cluster.metadata.all_hosts()
    assert [(host.endpoint.address, host.endpoint.port) for host in hosts] == [(backend.host, backend.port)]
    assert hosts[0].is_up
    assert session.execute("SELECT * FROM system.peers").all() == []
    local = session.execute("SELECT key, bootstrapped, partitioner, rpc_address FROM system.local").one()
    assert (local.key, local.bootstrapped) == ("local", "COMPLETED")
    assert local.partitioner.endswith("Murmur3Partitioner")
    assert local.rpc_address == backend.host


def test_the_view_survives_a_refresh_of_the_nodes(backend, cluster, session):
    if not backend.through_proxy:
        pytest.skip("connected to a node directly")
    cluster.refresh_nodes(force_token_rebuild=True)
    assert len(cluster.metadata.all_hosts()) == 1
    assert len(session.get_pool_state()) == 1


def test_schema_metadata_is_that_of_the_ring(cluster, session, keyspace, table):
    name = table("a int, b text, c text static, PRIMARY KEY (a, b)")
    cluster.refresh_schema_metadata()
    metadata = cluster.metadata.keyspaces[keyspace].tables[name]
    assert [column.name for column in metadata.partition_key] == ["a"]
    assert [column.name for column in metadata.clustering_key] == ["b"]
    assert metadata.columns["c"].is_static
