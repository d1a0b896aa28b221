"""The table of suites forgets no test, and names nothing that does not exist."""

import json
import re
import subprocess
import sys

import pytest

sys.path.insert(0, "scripts")

from runner import ROOT, table  # noqa: E402 (the path comes first)

# Files that only `make test-long` runs.
LONG = {"tests/dispatch/test_cql_drivers.py", "tests/faults/test_conditional_statements.py",
        "tests/faults/test_control_node_killed.py", "tests/faults/test_extension_installed.py",
        "tests/faults/test_node_joins.py", "tests/faults/test_node_killed.py", "tests/faults/test_node_paused.py",
        "tests/faults/test_node_restarted.py", "tests/packaging/test_chart_rendering.py",
        "tests/tls/test_other_drivers.py",
        "tests/packaging/test_rpm.py", "tests/packaging/test_completions.py"}


@pytest.fixture(scope="module")
def suites():
    return table.load()[0]


def commands(suites, run) -> str:
    return "\n".join(suite.command for suite in suites if run in suite.runs)


def test_the_table_is_valid():
    table.check(*table.load())


def test_every_test_program_of_the_workspace_is_in_one_suite(suites):
    asked = ["cargo", "metadata", "--no-deps", "--offline", "--format-version", "1"]
    metadata = json.loads(subprocess.run(asked, cwd=ROOT, capture_output=True, check=True).stdout)
    programs = {target["name"] for package in metadata["packages"] for target in package["targets"] if "test" in target["kind"]}
    listed = [name for suite in suites if "unit" in suite.runs for name in re.findall(r"--test (\S+)", suite.command)]
    assert sorted(listed) == sorted(programs)


def test_every_file_of_tests_is_in_a_suite(suites):
    everything = commands(suites, "test") + commands(suites, "long")
    named = set(re.findall(r"(?<!--ignore )\b((?:tests|experiments)/[\w/.]+)", everything))
    for file in [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("experiments/**/test_*.py")]:
        path = str(file.relative_to(ROOT))
        parents = {str(parent) for parent in file.relative_to(ROOT).parents}
        assert path in named or parents & named, f"no suite runs {path}"


def test_a_file_that_one_suite_ignores_is_in_another(suites):
    for run, left_out in (("test", LONG), ("long", set())):
        for path in set(re.findall(r"--ignore (\S+)", commands(suites, run))) - left_out:
            wanted = {path, path.rsplit("/", 1)[0]}
            having = [suite.name for suite in suites if run in suite.runs and f"--ignore {path}" not in suite.command
                      and wanted & set(re.findall(r"(?<!--ignore )\b(tests/[\w/.]+)", suite.command))]
            assert having, f"{path} is ignored in {run}, and in no suite"
    by_directory = set(re.findall(r"(?<!--ignore )\b(tests/[\w/.]+)", commands(suites, "long")))
    assert all(path in by_directory or path.rsplit("/", 1)[0] in by_directory for path in LONG)


def test_every_experiment_is_in_its_short_form_somewhere(suites):
    scenarios = {path.stem for path in (ROOT / "experiments" / "scenarios").glob("*.toml")}
    words = {word for suite in suites if "bench run" in suite.command for word in suite.command.split()}
    assert scenarios - words == {"soak"}, "soak runs for two hours by itself"


@pytest.mark.parametrize(("change", "complaint"), [
    ({"needs": ["nothing of this name"]}, "which must stand before it|which nothing provides"),
    ({"runs": ["sometimes"]}, "runs must be some of"),
    ({"counts": "sheep"}, "counts is 'sheep'"),
    ({"service": "a service"}, "there is no service"),
    ({"command": "{snake} a.py"}, "its command has {snake}"),
])
def test_a_wrong_entry_is_named(change, complaint):
    good = {"name": "one", "runs": ["test"], "command": "true", "seconds": 1, "processors": 1}
    with pytest.raises(table.BadTable, match=complaint) as raised:
        table.check([table.Suite(**{**good, **change})], [])
    assert str(raised.value).startswith("one: ")


def test_commands_have_their_words():
    known = {"pytest": ["python", "-m", "pytest"], "target": "/t", "none": []}
    assert table.words("{pytest} a 'b c' {none} {target}/x --k={target}", known) == ["python", "-m", "pytest", "a", "b c", "/t/x", "--k=/t"]
