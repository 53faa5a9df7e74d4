"""`virtctl plan` and `expand`: what becomes of an edit, and what an instance type stands for.

Both only ask the server; nothing is changed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click

from livevirt.cli import cluster, table
from livevirt.cli.session import VM, Session, refusals, talk
from livevirt.cli.table import Row
from livevirt.cli.vm.documents import manifests, namespace_of, parsed, print_yaml
from livevirt.cli.vm.flags import Command
from livevirt.vm.kinds.subresources import GROUP

Object = dict[str, Any]

_WORST_FIRST = (3, 2, 4, 0)  # of several plans: refused, restart, will wait, live
_SENTENCES = {
    0: "live: no restart is needed",
    2: "needs a restart",
    3: "would be refused",
    4: "live, but it will wait",
}
_COLOURS = {"Restart": "yellow", "Refused": "red"}


@click.command(cls=Command)
@click.argument("vm", metavar="[VM]", default="")
@click.option("-f", "--filename", metavar="FILE", help="A manifest; - reads standard input.")
@click.option("-p", "--patch", metavar="PATCH", help="A merge patch of VM, in JSON or YAML.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="What to print.",
)  # fmt: skip
@cluster.flags()
def plan(vm: str, filename: str | None, patch: str | None, output: str) -> int:
    """Show what would become of an edit, field by field. Nothing is changed.

    Without --patch it shows what waits in VM as it is. Exits with 0 if all is live, 2 if something
    needs a restart, 3 if it would be refused, 4 if it is live but will wait.

    \b
    virtctl plan -f web.yaml
    virtctl plan web --patch '{"spec":{"template":{"spec":{"nodeSelector":{"disk":"ssd"}}}}}'
    virtctl plan web -o json
    """
    asked = _asked(vm, filename, patch)

    async def work(session: Session) -> list[Object]:
        found = []
        for name, body in asked:
            there = replace(session, namespace=namespace_of(body) or session.namespace)
            found.append(await ask(there, name, body))
        return found

    with refusals("error planning VirtualMachine: {}"):
        plans = talk(work)
    if output == "json":
        shown: Any = plans[0] if len(plans) == 1 else plans
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        for (name, _), document in zip(asked, plans, strict=True):
            show(name, document)
    statuses = {exit_status(document) for document in plans}
    return next(status for status in _WORST_FIRST if status in statuses)


async def ask(session: Session, name: str, body: Object) -> Object:
    """Return the plan of a VM as it would be, or of a merge patch of it."""
    found: Object = json.loads(await session.ask("POST", VM, name, "plan", body))
    return found


def _asked(vm: str, filename: str | None, patch: str | None) -> list[tuple[str, Object]]:
    """Return what to plan: the name of each VM and the body to send."""
    if filename is not None:
        if vm or patch is not None:
            raise click.UsageError("give either -f FILE, or VM with or without --patch")
        return manifests(filename)
    if not vm:
        raise click.UsageError("nothing to plan: give -f FILE, or VM with or without --patch")
    body = parsed(patch or "{}", "--patch")[0]
    if not isinstance(body, dict):
        raise click.UsageError("--patch must be an object, such as '{\"spec\": …}'")
    return [(vm, body)]


def exit_status(document: Object) -> int:
    """Return how a command exits that shows a plan: as `virtctl plan` does."""
    from livevirt.vm.verdict import summary

    return summary.exit_status(document)


def show(name: str, document: Object) -> None:
    """Print one plan as a table."""
    from livevirt.vm.verdict.comparison import TEMPLATE
    from livevirt.vm.verdict.summary import compact

    status, changes = exit_status(document), document["changes"]
    if not changes:
        if document["running"]:
            click.echo(f"{name}: all changes are applied in the guest, nothing would change")
        else:
            click.echo(f"{name}: no guest runs, all of it takes effect at the next start")
        return
    rows = []
    for change in changes:
        path, verdict = change["path"], change["verdict"]
        why = f"{change['reason']}: {change['message']}"
        if "nearestLive" in change:
            why += f" (nearest live value: {compact(path, change['nearestLive'])})"
        values = (_value(compact(path, change[side])) for side in ("from", "to"))
        cells = (path.removeprefix(f"{TEMPLATE}."), *values, verdict)
        rows.append(Row(cells, why, _COLOURS.get(verdict, "green")))
    table.echo(("FIELD", "CURRENT", "DESIRED", "VERDICT", "WHY"), rows)
    if pod := document.get("pod"):
        moved = (f"{each['resource']} {each['from']} -> {each['to']}" for each in pod)
        click.echo(f"its pod: {', '.join(moved)}")
    click.echo(f"{name}: {_SENTENCES[status]}")


def _value(text: str) -> str:
    return "-" if text == "null" else text


# ---------------------------------------------------------------- expand


@click.command(cls=Command)
@click.option("--vm", default="", metavar="NAME", help="A VM of the cluster.")
@click.option("-f", "--file", default="", metavar="FILE", help="A manifest; - is standard input.")
@click.option("-o", "--output", default="yaml", show_default=True, help="yaml or json.")
@cluster.flags()
def expand(vm: str, file: str, output: str) -> None:
    """Print a VM with what its instance type and preference stand for. Nothing is changed.

    \b
    virtctl expand --vm web
    virtctl expand -f web.yaml -o json
    virtctl create vm --instancetype u1.small | virtctl expand -f -
    """
    if bool(vm) == bool(file):
        raise click.UsageError(
            "error invalid arguments - VirtualMachine name or file must be provided"
        )
    if output not in ("yaml", "json"):
        raise click.UsageError(f"error not supported output format defined: {output}")
    body = None
    if file:
        found = manifests(file)
        if len(found) > 1:
            raise click.UsageError(f"{file} has {len(found)} VirtualMachines, give one at a time")
        vm, body = found[0]

    async def work(session: Session) -> bytes:
        if body is None:
            with refusals(_expand_error(vm, session.namespace)):
                return await session.ask("GET", VM, vm, "expand-spec")
        there = replace(session, namespace=namespace_of(body) or session.namespace)
        with refusals(_expand_error(vm, there.namespace)):
            path = f"/apis/{GROUP}/v1/namespaces/{there.namespace}/expand-vm-spec"
            return await there.client.raw("PUT", path, body=body)

    _print_expanded(json.loads(talk(work)), output)


def _expand_error(vm: str, namespace: str) -> str:
    return f"error expanding VirtualMachine - {vm} in namespace - {namespace}: {{}}"


def _print_expanded(obj: dict[str, Any], output: str) -> None:
    if output == "json":
        click.echo(json.dumps(obj, indent=1, ensure_ascii=False))
        return
    print_yaml(obj)
