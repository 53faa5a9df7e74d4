import subprocess

import pytest

from livevirt.node.network import namespace, ruleset
from livevirt.node.network.forwarding import Backend, Forward
from livevirt.node.network.port import GuestPort, OpenPort
from livevirt.node.network.ruleset import HostRules

from .test_links import a_design

WEB = GuestPort(
    nic="net-default", tap="t00", mac="02:00:00:00:00:01", ip4="10.27.0.11", ip6="fd00::11",
    mtu=1400, only=(OpenPort("tcp", 80), OpenPort("udp", 53)),
)  # fmt: skip
DB = GuestPort(
    nic="net-default", tap="t10", mac="02:00:00:00:00:02", ip4="10.27.0.12", ip6="fd00::12",
    mtu=1400, host_access=True,
)  # fmt: skip

FORWARDS = [
    Forward("10.27.32.7", "tcp", 80, (Backend(WEB.ip4, 8080), Backend(DB.ip4, 8081)), 30080),
    Forward("fd00:2::7", "udp", 53, (Backend(WEB.ip6, 53),)),
    Forward("10.27.32.8", "tcp", 80, (Backend(WEB.ip4, 8080),), sticky=True),
    Forward("10.27.32.9", "tcp", 80, ()),
]

TEXTS = {
    "inside, no guests": ruleset.inside([]),
    "inside, two guests": ruleset.inside([WEB, DB]),
    "inside, a guest that migrates": ruleset.inside([WEB, WEB]),
    "host": ruleset.host(HostRules(a_design(), 6443, ["eth0"], [WEB, DB])),
    "inside, with Services": ruleset.inside([WEB, DB], FORWARDS),
    "host, with node ports": ruleset.host(HostRules(a_design(), 6443, [], [WEB], FORWARDS)),
    "host without uplinks": ruleset.host(HostRules(a_design(), 6443)),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_kernel_accepts_the_ruleset_twice(text: str) -> None:
    if problem := namespace.problem():
        pytest.skip(f"no network namespace: {problem}")
    command = ["unshare", "-n", namespace.program("nft") or "nft", "-f", "-"]
    done = subprocess.run(
        command, input=f"{text}\n{text}", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_guest_that_lists_ports_is_reached_on_those_only() -> None:
    text = ruleset.inside([WEB, DB])
    assert "10.27.0.11 . tcp . 80" in text
    assert "fd00::11 . udp . 53" in text
    limited = next(line for line in text.splitlines() if line.startswith("set limited4"))
    assert WEB.ip4 in limited
    assert DB.ip4 not in limited


def test_a_guest_sends_with_its_own_addresses_only() -> None:
    text = ruleset.inside([WEB])
    assert f'"{WEB.tap}" . {WEB.mac} . {WEB.ip4}' in text


def test_only_guests_that_may_reach_the_host_do() -> None:
    text = ruleset.host(HostRules(a_design(), 6443, [], [WEB, DB]))
    allowed = next(line for line in text.splitlines() if line.startswith("set allowed"))
    assert DB.ip4 in allowed
    assert WEB.ip4 not in allowed
