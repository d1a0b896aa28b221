"""Arguments that programs have in common which measure arms in turn, on a ring or, in their short form, on an embedded node."""

import argparse


def parser_of_arms(description: str, seconds: float, training_seconds: float) -> argparse.ArgumentParser:
    """With these defaults; a program adds its own."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--seconds", type=float, default=seconds, help="measured, for each arm and round")
    made.add_argument("--warm-up", type=float, default=1)
    made.add_argument("--training-seconds", type=float, default=training_seconds,
                      help="of load by each arm on the nodes before anything is measured")
    made.add_argument("--optimise", action="store_true", help="Cassandra uses both compilers; warm up longer")
    made.add_argument("--embedded", action="store_true", help="an embedded node in place of the ring, one replica: the short form")
    made.add_argument("--json", action="store_true", help="print every measurement")
    return made
