"""Completions of zsh and fish, in these shells. test_package.py has bash's, which every host has."""

import subprocess
from pathlib import Path

import pytest

from harness.programs import only_with
from harness.proxy import binary


@pytest.fixture
def completions(tmp_path):
    """Writes the completions of a shell as the packages do; gives the path."""
    def write(shell: str, name: str) -> Path:
        path = tmp_path / name
        path.write_bytes(subprocess.run([binary(), "generate", "completions", shell], capture_output=True, check=True).stdout)
        return path
    return write


def output(*words) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    return done.stdout


@only_with("shells", "zsh")
def test_zsh_reads_and_finds_them(completions, tmp_path):
    script = completions("zsh", "_shunt")
    output("zsh", "-f", "-n", script)
    find = f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -d {tmp_path}/dump; print -- $_comps[shunt]; autoload +X _shunt"
    assert output("zsh", "-f", "-c", find) == "_shunt\n"


@only_with("shells", "zsh")
def test_zsh_sees_a_fault(completions):
    script = completions("zsh", "_shunt")
    script.write_text(script.read_text() + "\nif\n")
    assert subprocess.run(["zsh", "-f", "-n", script], capture_output=True).returncode != 0


@only_with("shells", "fish")
def test_fish_completes_commands_and_options(completions):
    script = completions("fish", "shunt.fish")
    output("fish", "--no-config", "--no-execute", script)
    ask = f"source {script}; complete --do-complete 'shunt prox'; complete --do-complete 'shunt proxy --contact-p'"
    words = [line.split("\t")[0] for line in output("fish", "--no-config", "-c", ask).splitlines()]
    assert words == ["proxy", "--contact-points"]
