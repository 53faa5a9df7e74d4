"""How guests and ports are named on the command line."""

from __future__ import annotations

import click
import pytest

from livevirt.cli.vm.target import Ports, Target, parse, parse_ports, parse_with_user

TARGETS = {
    "vm/web": Target("vm", "web"),
    "vmi/web": Target("vmi", "web"),
    "VirtualMachines/web/prod": Target("vm", "web", "prod"),
    "vmis/web": Target("vmi", "web"),
    "vmi/web.prod": Target("vmi", "web", "prod"),
    "vmi/web.prod/other": Target("vmi", "web.prod", "other"),
}


@pytest.mark.parametrize(("text", "target"), TARGETS.items())
def test_a_target(text: str, target: Target) -> None:
    assert parse(text) == target
    assert parse_with_user(f"jane@{text}") == target._replace(user="jane")
    assert parse_with_user(text) == target


@pytest.mark.parametrize("text", ["", "web", "vm/", "pod/web", "vm/web/", "vm/web/a/b", "vm//a"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(click.UsageError):
        parse(text)


def test_a_user_must_have_a_name() -> None:
    with pytest.raises(click.UsageError):
        parse_with_user("@vm/web")


PORTS = {
    "8080": Ports(8080, 8080),
    "8080:80": Ports(8080, 80),
    "0:80": Ports(0, 80),
    "tcp/22": Ports(22, 22),
    "UDP/5353:53": Ports(5353, 53, "udp"),
}


@pytest.mark.parametrize(("text", "ports"), PORTS.items())
def test_ports(text: str, ports: Ports) -> None:
    assert parse_ports(text) == ports


@pytest.mark.parametrize(
    "text",
    ["", "http", "0", "80:0", "80:", ":80", "-1", "65536", "1:65536", "sctp/80", "1:2:3", "٣"],
)
def test_what_is_no_port(text: str) -> None:
    with pytest.raises(click.UsageError):
        parse_ports(text)
