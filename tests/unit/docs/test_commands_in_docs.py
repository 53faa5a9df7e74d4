"""Commands in the docs are ones that exist, with flags that they have.

`tests/guest/test_guide.py` runs what the pages for users show. Here every command of every page is
only parsed, also one in the middle of a sentence.
"""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from livevirt.cli import livevirt, virtctl

ROOT = Path(__file__).resolve().parents[3]
GENERATED = ("commands.md", "settings.md")  # made from the commands themselves
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if page.name not in GENERATED
]
KUBECTL = Path(sys.executable).parent / "kubectl"
TREES: dict[str, click.Command] = {"livevirt": livevirt.cli, "virtctl": virtctl.cli}
PROGRAMS = (*TREES, "kubectl")
WITH_SUBCOMMANDS = ("create", "top")  # of kubectl, with flags of their own
ENDS = ("|", "&&", ";", ">", "<")
#: What a page says instead of a whole command: `virtctl cdrom inject|eject`, `virtctl … --force`.
ELLIPSIS = re.compile(r"…|\.\.\.|\w\|\w")


def spans(text: str) -> list[str]:
    """Return the lines of code blocks, continued ones joined, and what stands between backticks."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    inline = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    return [line.removeprefix("$ ") for line in lines] + inline


def commands(text: str) -> list[list[str]]:
    """Return the words of every command that begins with one of our programs."""
    found = []
    for span in spans(text):
        if not span.startswith(PROGRAMS) or ELLIPSIS.search(span):
            continue
        lexer = shlex.shlex(span, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split, lexer.commenters = True, "#"
        command: list[str] = []
        for word in [*lexer, ";"]:
            if word not in ENDS:
                command.append(word)
                continue
            if len(command) > 1 and command[0] in PROGRAMS:
                found.append(command)
            command = []
    return found


def check_ours(words: list[str]) -> None:
    """Parse a command of ours; raises ClickException if it cannot be typed so."""
    command, rest = TREES[words[0]], words[1:]
    while isinstance(command, click.Group) and rest:
        below = command.get_command(click.Context(command), rest[0])
        if below is None and command.invoke_without_command:
            break  # `virtctl vnc VMI` beside `virtctl vnc screenshot VMI`
        assert below is not None, f"there is no {rest[0]}"
        command, rest = below, rest[1:]
    if not rest:
        return  # its name alone
    parser = command.make_parser(click.Context(command))
    parser.parse_args(args=list(rest))


@functools.cache
def kubectl_flags(verb: str) -> str:
    """Return what kubectl says of the flags of a verb, and of those all verbs have."""
    told = [
        subprocess.run([KUBECTL, *words], capture_output=True, text=True, check=True).stdout
        for words in ((*verb.split(), "--help"), ("options",))
    ]
    assert "Usage:" in told[0]
    return "\n".join(told)


def check_kubectl(words: list[str]) -> None:
    verb, *rest = words[1:]
    if verb in WITH_SUBCOMMANDS and rest and not rest[0].startswith("-"):
        verb = f"{verb} {rest.pop(0)}"
    known = kubectl_flags(verb)
    for flag in (word.partition("=")[0] for word in rest if re.match("-.", word)):
        pattern = rf"(?<![\w-]){flag}\b" if flag.startswith("--") else rf"(?<![\w-]){flag},"
        assert re.search(pattern, known), f"kubectl {verb} has no {flag}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_can_be_typed(page: Path) -> None:
    wrong = []
    for words in commands(page.read_text()):
        try:
            (check_kubectl if words[0] == "kubectl" else check_ours)(words)
        except (click.ClickException, AssertionError, subprocess.CalledProcessError) as error:
            wrong.append(f"{shlex.join(words)}: {error}")
    assert wrong == []


@pytest.mark.parametrize("name", ["README.md", "guide.md", "migration.md", "live-update.md"])
def test_the_pages_for_users_have_commands(name: str) -> None:
    (page,) = (page for page in PAGES if page.name == name)
    assert len(commands(page.read_text())) >= 5


WRONG = ("virtctl vm resize web", "virtctl migrate web --now", "kubectl drain node01 --gently",
         "livevirt up --detached=yes --nodes")  # fmt: skip


@pytest.mark.parametrize("command", WRONG)
def test_a_command_that_does_not_exist_is_found(command: str) -> None:
    ((program, *rest),) = commands(f"```\n{command}\n```")
    with pytest.raises((click.ClickException, AssertionError)):
        (check_kubectl if program == "kubectl" else check_ours)([program, *rest])
