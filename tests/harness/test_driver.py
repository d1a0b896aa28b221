"""The Python driver waits for longer than a proxy of the tests, whichever way a test makes its session."""

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster

from harness.driver import ANSWER_SECONDS, UNDISTURBED, profile
from harness.node import Settings, yaml_of
from harness.proxy import UNDISTURBED_PROXY


def seconds_of(cluster: Cluster) -> float:
    return cluster.profile_manager.default.request_timeout


def test_a_statement_has_minutes_with_a_profile_and_without():
    assert seconds_of(Cluster(["127.0.0.1"], **UNDISTURBED)) == ANSWER_SECONDS
    assert seconds_of(Cluster(["127.0.0.1"], execution_profiles={EXEC_PROFILE_DEFAULT: profile()})) == ANSWER_SECONDS
    assert profile(request_timeout=5).request_timeout == 5


def test_who_is_nearer_to_the_data_gives_up_first(tmp_path):
    """The error of the nearest one says most."""
    yaml = yaml_of(Settings("quiet", "127.0.0.1", tmp_path, [], [0], patient=True))
    times = dict(zip(UNDISTURBED_PROXY[::2], map(int, UNDISTURBED_PROXY[1::2])))
    assert "write_request_timeout: 60s" in yaml and "read_request_timeout: 60s" in yaml
    assert 60 < times["--query-timeout-ms"] / 1000 < ANSWER_SECONDS
    assert yaml.count("cas_contention_timeout") == yaml.count("write_request_timeout: ") - 1 == 1
