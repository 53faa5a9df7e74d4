import subprocess
from pathlib import Path

import pytest

from livevirt.node.network import dnsmasq, namespace
from livevirt.node.network.dnsmasq import Files

from .test_links import a_design
from .test_ruleset import WEB


def test_dnsmasq_accepts_the_configuration(tmp_path: Path) -> None:
    program = namespace.program("dnsmasq")
    if program is None:
        pytest.skip("dnsmasq is not installed")
    files = Files(tmp_path)
    files.configuration.write_text(
        dnsmasq.configuration(a_design(), files, ["192.0.2.1"], "nobody")
    )
    command = [program, "--test", *dnsmasq.arguments(files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_lease_has_both_addresses_of_a_card() -> None:
    assert dnsmasq.lease(WEB) == f"{WEB.mac},{WEB.ip4},[{WEB.ip6}],infinite\n"


def test_name_servers_on_the_loopback_of_the_host_are_left_out() -> None:
    text = "# resolv.conf\nsearch example.org\nnameserver 127.0.0.53\nnameserver 192.0.2.7\n"
    assert dnsmasq.nameservers(text) == ["127.0.0.53", "192.0.2.7"]
    found = dnsmasq.reachable([*dnsmasq.nameservers(text), "::1", "fe80::1%eth0", "fd00::53", "x"])
    assert found == ["192.0.2.7", "fd00::53"]
