"""The scripts of `completion` make a shell complete commands, subcommands and flags."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from livevirt.cli.completion import _SHELLS

from ...server_process import BIN

PROGRAMS = ("livevirt", "virtctl")
#: What is typed, with what it may become.
TYPED = {
    "livevirt vol": {"volume"},
    "livevirt image i": {"import"},
    "livevirt up --det": {"--detach"},
    "virtctl sta": {"start"},
    "virtctl vm update-": {"update-instance-type", "update-preference"},
    "virtctl start --tim": {"--timeout"},
}


def in_shell(*command: str) -> str:
    """Run a command that finds ours in its path; return what it printed."""
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(("line", "becomes"), TYPED.items(), ids=TYPED)
def test_given_the_script_is_sourced_then_bash_completes(line: str, becomes: set[str]) -> None:
    program, *words = line.split()
    script = f"""
        source <({program} completion bash)
        [[ $(complete -p {program}) == *_{program}_completion* ]]
        COMP_WORDS=({line}) COMP_CWORD={len(words)}
        _{program}_completion {program}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    assert set(in_shell("bash", "-euc", script).split()) == becomes


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("shell", _SHELLS)
def test_given_another_shell_then_its_script_can_be_read(shell: str, program: str) -> None:
    script = in_shell(str(BIN / program), "completion", shell)
    assert f"_{program.upper()}_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        in_shell(shell, "-n", "-c", script)
