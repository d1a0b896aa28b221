"""Histories of operations on the same keys, by many clients, and whether one copy of the data can have answered like that.

record.py         one history: every operation with the times of its call and return, and what its client knows of its outcome
clients.py        many clients of the Python driver that write and read registers, lists, rows of one partition, and locks
check/            a Go program that checks a history key by key with porcupine; `run` runs its tests
verdict.py        builds and runs it; a history that fails stays in target/test-logs
test_record.py    what errors say of an outcome; a wrong history fails a test
test_embedded.py  histories on embedded nodes that are killed; those on a ring are in tests/faults/test_histories.py, those of locks and of
                  registers under guard in tests/locks/test_histories.py and tests/transactions/test_guarded_registers.py

What a history may contain. A write that timed out is not a write that failed: Cassandra may still apply it at any later
time, or never, and both are right. A write that was acknowledged is seen by every read at QUORUM that begins later, until
another write; reads at QUORUM do not go back either, as each repairs what it found before it returns. Locks are read at
SERIAL, which sees what a conditional statement decided. The nodes of a ring on one machine have one clock, so the last
write wins by the time of that clock: writers of one key pause between writes, as timestamps of two coordinators tie within
a millisecond.
"""
