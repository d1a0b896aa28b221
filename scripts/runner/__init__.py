"""Runs the suites of tests/suites.toml after those that they need, as many side by side as the
processors carry."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "target"
LOGS = TARGET / "test-logs"
# Every build with the store compiles RocksDB and its compressors from source if ROCKSDB_COMPILE is
# set.
BUNDLED = ["--features", "shunt-storage/bundled"] if os.environ.get("ROCKSDB_COMPILE") else []
