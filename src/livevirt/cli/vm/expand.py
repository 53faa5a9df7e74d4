"""`virtctl expand`: a VM with its instance type and preference written out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click

from livevirt.cli import cluster
from livevirt.cli.session import VM, Session, refusals, talk
from livevirt.cli.vm.flags import Command
from livevirt.cli.vm.source import manifests, namespace_of
from livevirt.vm.kinds.subresources import GROUP


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
            with refusals(_wording(vm, session.namespace)):
                return await session.ask("GET", VM, vm, "expand-spec")
        there = replace(session, namespace=namespace_of(body) or session.namespace)
        with refusals(_wording(vm, there.namespace)):
            path = f"/apis/{GROUP}/v1/namespaces/{there.namespace}/expand-vm-spec"
            return await there.client.raw("PUT", path, body=body)

    _print(json.loads(talk(work)), output)


def _wording(vm: str, namespace: str) -> str:
    return f"error expanding VirtualMachine - {vm} in namespace - {namespace}: {{}}"


def _print(obj: dict[str, Any], output: str) -> None:
    if output == "json":
        click.echo(json.dumps(obj, indent=1, ensure_ascii=False))
        return
    from livevirt.cli.vm.printing import print_yaml

    print_yaml(obj)
