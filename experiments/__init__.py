"""The programs that measure: each answers one question, as README.md beside this lists. `experiments/run` starts them.

What they start (rings, nodes, proxies) is in `tests/harness`.
"""
