"""Shared by the tests of the report: a whole invented run and its report."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

import invented  # noqa: E402 (the path comes first)
from pages import Report, build  # noqa: E402


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> Report:
    """The report of a whole run, built once."""
    return build(tmp_path_factory.mktemp("whole"), invented.lines())


@pytest.fixture
def make(tmp_path):
    """Builds the report of some lines."""
    return lambda rows: build(tmp_path, rows)
