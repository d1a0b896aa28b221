"""Differential test: the same random statements on Shunt's embedded node and on Apache Cassandra must answer the same.

A run is many independent sequences. A sequence creates its own table (and user-defined types), writes, reads and alters
it; what it does is a function of the run's seed and its own number alone, so any of them can be made again.

types.py, values.py    CQL types, and values as literal, as bytes and as JSON; boundary values on purpose
schema.py              random tables and types, and what the generator knows of them
draft.py, step.py      one statement: its text, bound values, page size and what of its answer is not exact
writes.py, conditions.py, batches.py, reads.py, selectors.py, wheres.py, alterations.py, invalid.py   statements
sequence.py            puts them together by weight
endpoint.py, raw.py    runs a statement through the Python driver's connections; answers stay bytes, nothing is decoded
compare.py             what is the same and what is different; expected.py is the list of intended differences
runner.py, workers.py  many sequences at a time, in several processes
shrink.py, report.py   makes a failing sequence short; prints and writes it
plant.py               answers falsified on purpose, which the self-test must find

Answers are compared as bytes: that is stricter than Python values (NaN, -0.0, dates beyond year 9999, the scale of a
decimal), and does not depend on what the driver can decode. Run it from `tests` with
`python -m differential --ours HOST:PORT --cassandra HOST:PORT`.
"""
