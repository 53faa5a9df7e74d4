"""`virtctl expose`: create a Service in front of a guest."""

from __future__ import annotations

from typing import Any

import click

from livevirt.cli import cluster
from livevirt.cli.session import Session, refusals, talk
from livevirt.cli.vm.flags import Command
from livevirt.cli.vm.instance import either

_FAMILIES = {"ipv4": ["IPv4"], "ipv6": ["IPv6"], "ipv4,ipv6": ["IPv4", "IPv6"],
             "ipv6,ipv4": ["IPv6", "IPv4"]}  # fmt: skip
_POLICIES = {each.lower(): each for each in ("SingleStack", "PreferDualStack", "RequireDualStack")}


def _target(_: click.Context, __: click.Parameter, value: str) -> int | str:
    return int(value) if value.isdigit() else value


@click.command(cls=Command)
@click.argument("sort", callback=either, metavar="vm|vmi")
@click.argument("guest", metavar="NAME")
@click.option("--name", required=True, help="Name of the Service.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the Service.")
@click.option(
    "--target-port", callback=_target, default="", help="Port of the guest (default: --port)."
)
@click.option("--port-name", default="", help="Name of the port.")
@click.option(
    "--protocol", type=click.Choice(["TCP", "UDP", "SCTP"], case_sensitive=False), default="TCP",
    show_default=True, help="Protocol of the port.",
)  # fmt: skip
@click.option(
    "--type", "type_", default="ClusterIP", show_default=True,
    type=click.Choice(["ClusterIP", "NodePort", "LoadBalancer"], case_sensitive=False),
    help="Type of the Service.",
)  # fmt: skip
@click.option("--cluster-ip", default="", help="Address of the Service; None for a headless one.")
@click.option(
    "--node-port", type=int, default=0, help="Port of the host's loopback, of a NodePort."
)
@click.option(
    "--ip-family", type=click.Choice([*_FAMILIES], case_sensitive=False), default=None,
    help="IP families of the Service.",
)  # fmt: skip
@click.option(
    "--ip-family-policy", type=click.Choice([*_POLICIES], case_sensitive=False), default=None,
    help="Whether it must have both families.",
)  # fmt: skip
@click.option("--labels", default="", metavar="KEY=VALUE,...", help="Labels of the Service.")
@cluster.flags()
def expose(sort: str, guest: str, name: str, port: int | None, **flags: Any) -> None:
    """Create a Service that forwards to a guest.

    Without --port it has the ports that the interfaces of the guest list.

    \b
    virtctl expose vm web --name web --port 80
    virtctl expose vm web --name web-ssh --port 22 --type NodePort
    virtctl expose vmi web --name web-all --cluster-ip None --port 80
    """

    async def work(session: Session) -> None:
        from livevirt.kube.objects import core
        from livevirt.vm import kinds
        from livevirt.vm.lifecycle.vmi import launcher

        found = await session.client.get(
            kinds.VM if sort == "vm" else kinds.VMI, guest, session.namespace
        )
        spec = found["spec"]["template"]["spec"] if sort == "vm" else found["spec"]
        ports = [_port(port, flags)] if port else _listed(spec)
        if not ports:
            raise click.ClickException(
                f"couldn't find port via --port flag or introspection: {guest}"
            )
        made = service(name, {launcher.ID_LABEL: launcher.as_label(guest)}, ports, flags)
        await session.client.create(core.SERVICE, made, session.namespace)

    with refusals(f"cannot expose {guest}: {{}}"):
        talk(work)
    click.echo(f"Service {name} successfully created for {sort} {guest}")


def _port(port: int, flags: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"port": port, "protocol": flags["protocol"].upper()}
    if flags["target_port"] != "":
        made["targetPort"] = flags["target_port"]
    if flags["port_name"]:
        made["name"] = flags["port_name"]
    if flags["node_port"]:
        made["nodePort"] = flags["node_port"]
    return made


def _listed(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the ports that the interfaces of a guest list, each with a name."""
    interfaces = (spec["domain"].get("devices") or {}).get("interfaces") or ()
    found = [port for each in interfaces for port in each.get("ports") or ()]
    return [
        {
            "name": port.get("name") or f"port-{number}",
            "port": port["port"],
            "protocol": port.get("protocol") or "TCP",
        }
        for number, port in enumerate(found, 1)
    ]


def service(
    name: str, selector: dict[str, str], ports: list[dict[str, Any]], flags: dict[str, Any]
) -> dict[str, Any]:
    """Return the Service to create. Pure."""
    spec: dict[str, Any] = {"type": flags["type_"], "selector": selector, "ports": ports}
    if flags["cluster_ip"]:
        spec["clusterIP"] = flags["cluster_ip"]
    if flags["ip_family"]:
        spec["ipFamilies"] = _FAMILIES[flags["ip_family"].lower()]
    if flags["ip_family_policy"]:
        spec["ipFamilyPolicy"] = _POLICIES[flags["ip_family_policy"].lower()]
    labels = dict(pair.split("=", 1) for pair in flags["labels"].split(",") if "=" in pair)
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
