from livevirt.node.network import addresses, links
from livevirt.node.network.links import BRIDGE, UPLINK, Design, Observed

DATA = "/var/lib/livevirt"


def a_design(mtu: int = 1400, host_ipv6: bool = True) -> Design:
    block = addresses.choose(DATA, [])
    assert block is not None
    return Design(addresses.name(DATA), DATA, block, mtu, host_ipv6)


def test_nothing_is_created_twice() -> None:
    design = a_design()
    fresh = links.plan(design, Observed())
    assert f"netns add {design.namespace}" in fresh.host_first
    assert any(line.startswith(f"link add {design.host_link}") for line in fresh.host_first)
    assert any(line.startswith(f"link add {BRIDGE}") for line in fresh.inside)
    there = Observed(True, frozenset({BRIDGE, UPLINK}), frozenset({design.host_link}))
    again = links.plan(design, there)
    assert again.host_first == ()
    assert not any("add" in line.split() for line in (*again.inside, *again.host_last))


def test_a_link_whose_other_end_is_gone_is_replaced() -> None:
    design = a_design()
    seen = Observed(True, frozenset({BRIDGE}), frozenset({design.host_link}))
    removed, added = links.plan(design, seen).host_first
    assert removed == f"link del {design.host_link}"
    assert added.startswith(f"link add {design.host_link}")


def test_a_host_without_ipv6_is_given_none() -> None:
    assert any(":" in line.split()[2] for line in links.plan(a_design(), Observed()).host_last)
    without = links.plan(a_design(host_ipv6=False), Observed()).host_last
    assert not any("fd" in line and ":" in line for line in without)


def test_guests_reach_each_other_by_the_router_only() -> None:
    assert any("isolated on" in line for line in links.attach("t0", 1500))
    assert links.sysctls()[f"ipv4/conf/{BRIDGE}/proxy_arp_pvlan"] == "1"
    assert links.sysctls()["bridge/bridge-nf-call-iptables"] == "0"


ROUTES = [
    {"dst": "default", "dev": "eth0"},
    {"dst": "192.0.2.0/24", "dev": "eth0"},
    {"dst": "10.27.0.0/18", "dev": "lv-ours"},
    {"dst": "10.9.8.7", "dev": "wg0"},
]


def test_routes_of_others_are_taken_and_the_default_route_is_the_uplink() -> None:
    assert [str(each) for each in links.routed(ROUTES, "lv-ours")] == [
        "192.0.2.0/24", "10.9.8.7/32",
    ]  # fmt: skip
    assert links.uplinks(ROUTES) == ["eth0"]


def test_only_networks_named_after_their_directory_have_an_owner() -> None:
    name = addresses.name("/gone")
    found = [
        {"ifname": f"lv-{name}", "ifalias": "/gone"},
        {"ifname": "lv-12345678", "ifalias": "/other"},  # its alias is not its directory
        {"ifname": "lv-87654321"},
        {"ifname": "eth0", "ifalias": "/gone"},
    ]
    assert links.owners(found) == {name: "/gone"}
