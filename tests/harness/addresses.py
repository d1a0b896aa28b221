"""The addresses of all rings of tests and experiments, so that no two of them meet when they run at a time.

A number is the last one of an address. It also gives the port for JMX, which every node has on 127.0.0.1, so that rings in
different networks need different numbers, too.
"""

# Name of a ring: its first number, and how many it may take, nodes that join included.
RINGS = {
    "ring": (1, 10),
    "auth": (11, 1),
    "faults": (21, 10),
    "soak": (31, 3),
    "cost-stock": (41, 1),
    "cost-jar": (42, 1),
    "bank": (51, 3),
    "cost": (54, 3),
    "tls": (61, 1),
    "identities": (62, 1),
    "identity-certificates": (63, 1),
    "quorum": (64, 3),
    "locks": (67, 3),
    "secured-drivers": (70, 1),
    "lwt": (71, 3),
    "transfers": (74, 3),
    "multiget": (77, 3),
    "auth-locks": (81, 1),
    "auth-transactions": (84, 1),
    "gather": (87, 3),
    "lock-nodes": (91, 5),
    "differential": (97, 1),
    "certificate-drivers": (100, 1),
    "documents": (96, 1),
    "speed": (98, 1),
    "bytes": (99, 1),
    "training": (250, 1),
}


def first_of(ring: str, nodes: int = 1) -> int:
    """The number of the first of so many nodes."""
    if ring not in RINGS:
        raise ValueError(f"the ring {ring!r} has no addresses: give it some in {__file__}, or give `first`")
    first, most = RINGS[ring]
    if nodes > most:
        raise ValueError(f"the ring {ring!r} has {most} address(es) for {nodes} nodes: give it more in {__file__}")
    return first
