"""`livevirt exec`: a command in a guest, through its agent."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import NamedTuple

import click

from livevirt.cli import cluster
from livevirt.cli.session import VMI, Session, refusals, talk
from livevirt.paths import DataDir


class Ended(NamedTuple):
    """How a command in a guest ended."""

    status: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False


async def in_guest(
    session: Session, vmi: str, command: tuple[str, ...], stdin: bytes = b""
) -> Ended:
    """Run a command in the guest of an instance and return how it ended."""
    body: dict[str, object] = {"command": list(command)}
    if stdin:
        body["stdin"] = base64.b64encode(stdin).decode()
    answer = json.loads(await session.ask("POST", VMI, vmi, "exec", body))
    return Ended(
        answer["exitCode"],
        base64.b64decode(answer["stdout"]),
        base64.b64decode(answer["stderr"]),
        answer.get("truncated", False),
    )


@click.command("exec")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="The data directory of the server (default: found as virtctl does).",
)
@click.option("-i", "--stdin", "pass_stdin", is_flag=True, help="Pass standard input on.")
@click.argument("vm", metavar="VM")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@cluster.flags()
def exec_(data_dir: Path | None, pass_stdin: bool, vm: str, command: tuple[str, ...]) -> int:
    """Run a command in a guest; its output and exit status are passed on.

    The guest's agent runs it as its own user, usually root, without a shell.

    \b
    livevirt exec web -- nproc
    livevirt exec web -- sh -c 'dmesg | tail'
    livevirt exec -i web -- tee /root/notes < notes
    """
    data = DataDir(data_dir.absolute()) if data_dir else None
    stdin = sys.stdin.buffer.read() if pass_stdin else b""
    with refusals(f"error: cannot run a command in {vm}: {{}}"):
        ended = talk(lambda session: in_guest(session, vm, command, stdin), data)
    for stream, output in ((sys.stdout, ended.stdout), (sys.stderr, ended.stderr)):
        stream.buffer.write(output)
        stream.flush()
    if ended.truncated:
        click.echo("livevirt exec: the agent kept only the first part of the output", err=True)
    return ended.status
