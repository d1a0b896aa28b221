"""The count of connections to the nodes."""

from experiments import ring_cost

SOCKETS = """0 0 127.0.0.1:40000 127.0.0.51:19042 users:(("shunt",pid=10,fd=7))
0 0 127.0.0.1:40001 127.0.0.52:19042 users:(("shunt",pid=100,fd=7))
0 0 127.0.0.1:40002 127.0.0.53:9142 users:(("python",pid=20,fd=8),("python",pid=21,fd=8))
0 0 127.0.0.1:40003 127.0.0.53:9142
"""


def test_connections_of_other_arms_are_not_counted():
    assert [ring_cost.held_by(SOCKETS, owners) for owners in ([10], [21], [10, 20], [1])] == [1, 1, 2, 0]
