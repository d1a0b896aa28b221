"""Runs the suites of tests/suites.toml: what must precede what, side by side as far as the processors reach."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "target"
LOGS = TARGET / "test-logs"
# RocksDB from source, with its compressors, where ROCKSDB_COMPILE says so: for every build that has the store in it.
BUNDLED = ["--features", "shunt-storage/bundled"] if os.environ.get("ROCKSDB_COMPILE") else []
