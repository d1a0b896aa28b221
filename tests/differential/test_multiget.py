"""IN queries asked in parts are answered as they are whole, on three embedded nodes or on the ring that SHUNT_RING names.

SHUNT_MULTIGET_REQUESTS and SHUNT_MULTIGET_SEED change how much and what.
"""

import os
from contextlib import ExitStack

from differential import multiget

REQUESTS = int(os.environ.get("SHUNT_MULTIGET_REQUESTS", "1500"))
SEED = int(os.environ.get("SHUNT_MULTIGET_SEED", "5"))
NETWORK = os.environ.get("SHUNT_FLEET_NETWORK", multiget.NETWORK)
# Of those that are drawn, about half can be split at all.
SPLIT_SHARE_MIN = 0.2
REASONS = ("allow_filtering", "distinct", "group_by", "json", "keys_max", "one_key", "order_by", "paging_state", "selection", "serial",
           "tracing", "type", "values", "where")


def test_every_answer_is_that_of_the_whole():
    with ExitStack() as stack:
        ring = os.environ.get("SHUNT_RING")
        nodes = ring.split(",")[0] if ring else stack.enter_context(multiget.embedded_nodes(NETWORK))
        found = multiget.run_all(nodes, 1, REQUESTS, SEED, NETWORK)
    assert not found.differing, "\n".join(found.differing[:5])
    assert found.counted["multigets_split_total"] > SPLIT_SHARE_MIN * REQUESTS, found.counted
    assert found.counted['multigets_lost_total{reason="pages"}'] > 0, found.counted
    missing = [reason for reason in REASONS if not found.counted[f'multigets_whole_total{{reason="{reason}"}}']]
    assert not missing, f"never drawn: {missing}"
