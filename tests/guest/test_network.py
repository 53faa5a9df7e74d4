"""The node network: guests have addresses of their own and reach each other, and nothing else.

All of it is seen from inside the guests, and again after `kill -9` of the server and a migration.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from livevirt.node.network import addresses, links, namespace
from livevirt.node.network.requests import HOST_ACCESS

from ..server_process import BIN
from .guest_host import GuestHost, Object, a_vm, until
from .moving_guest import MovingGuest, two_nodes

pytestmark = [pytest.mark.guest, pytest.mark.slow, pytest.mark.long]

if problem := namespace.problem():
    pytest.skip(f"no node network: {problem}", allow_module_level=True)

WEB, CLIENT = "web", "client"
SERVED, CLOSED = 8080, 8081
PAGE = "served by web"
SECONDS = 20  # for one connection between emulated guests on a busy machine


def a_connected_vm(name: str, **annotations: str) -> Object:
    vm = a_vm(name)
    template = vm["spec"]["template"]
    template["metadata"] = {"annotations": annotations}
    return vm


@pytest.fixture(scope="module")
def host() -> Iterator[GuestHost]:
    """Two nodes with two guests; the first serves a page on two ports and opens only one."""
    with two_nodes() as host:
        web = a_connected_vm(WEB)
        (interface,) = web["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"]
        interface["ports"] = [{"name": "http", "port": SERVED}]
        host.apply(web, a_connected_vm(CLIENT, **{HOST_ACCESS: "true"}))
        host.answers(WEB)
        host.answers(CLIENT)
        serve = (
            f"mkdir -p /tmp/www; echo {PAGE} > /tmp/www/page;"
            f" httpd -p {SERVED} -h /tmp/www; httpd -p {CLOSED} -h /tmp/www"
        )
        host.shell(WEB, serve)
        yield host


def interface_of(host: GuestHost, name: str) -> Object:
    (found,) = host.get("vmi", name)["status"]["interfaces"]
    return found


def fetch(host: GuestHost, address: str, port: int = SERVED, name: str = CLIENT) -> str:
    """Return what a guest gets from an address, "" if nothing."""
    shown = f"[{address}]" if ":" in address else address
    script = f"timeout {SECONDS} wget -q -O - http://{shown}:{port}/page || true"
    return host.shell(name, script)


def fetch_from_host(address: str, port: int = SERVED) -> str:
    try:
        with socket.create_connection((address, port), SECONDS) as connection:
            connection.sendall(b"GET /page HTTP/1.0\r\n\r\n")
            with connection.makefile("rb") as answer:
                return answer.read().decode()
    except OSError:
        return ""


def name_of(host: GuestHost) -> str:
    return addresses.name(str(host.server.data.resolve()))


def link_address(host: GuestHost) -> str:
    """Return the address of the host's end of the link, by which guests would reach the host."""
    block = (host.server.data / "network/addresses").read_text().split()[0]
    return str(addresses.IPv4Network(block)[-3])


def dnsmasqs(host: GuestHost) -> list[str]:
    found = subprocess.run(
        ["pgrep", "-f", f"dnsmasq.*{host.server.data}"], capture_output=True, text=True, check=False
    )
    return found.stdout.split()


def everything_works(host: GuestHost) -> None:
    """Expect both guests and the host to reach the first.

    On a busy machine an emulated guest may take longer than the three seconds after which a
    neighbour that does not answer is unreachable; it is tried again.
    """
    for address in interface_of(host, WEB)["ipAddresses"][:2]:
        until(f"{address} from a guest", lambda at=address: fetch(host, at) == PAGE, 100)
        until(f"{address} from the host", lambda at=address: PAGE in fetch_from_host(at), 60)


def test_a_guest_has_the_address_that_its_status_shows(host: GuestHost) -> None:
    found = interface_of(host, WEB)
    for address in found["ipAddresses"][:2]:
        shows = f"ip addr show eth0 | grep -c 'inet.* {address}/' || true"
        until(f"{address} in the guest", lambda what=shows: host.shell(WEB, what) == "1", 60)
    assert found["mac"] in host.shell(WEB, "ip link show eth0")
    (pod,) = host.pods(WEB)
    assert [each["ip"] for each in pod["status"]["podIPs"]] == found["ipAddresses"][:2]
    assert pod["status"]["podIP"] == found["ipAddress"]
    (node,) = (each for each in host.read("api/v1/nodes")["items"][:1])
    (condition,) = (
        each for each in node["status"]["conditions"] if each["type"] == "livevirt.io/NodeNetwork"
    )
    assert condition["status"] == "True"


def test_guests_reach_each_other_and_the_host_reaches_them(host: GuestHost) -> None:
    everything_works(host)


def test_only_the_ports_of_an_interface_are_open(host: GuestHost) -> None:
    address = interface_of(host, WEB)["ipAddress"]
    assert host.shell(WEB, f"wget -q -O - http://127.0.0.1:{CLOSED}/page") == PAGE
    assert fetch(host, address, CLOSED) == ""
    assert fetch_from_host(address, CLOSED) == ""


def test_a_guest_reaches_neither_the_host_nor_the_api(host: GuestHost) -> None:
    outside, api = link_address(host), int(host.server.url.rpartition(":")[2])
    with greeting(outside) as port:
        for address, where in ((outside, port), (outside, api), ("127.0.0.1", api)):
            assert not reaches(host, WEB, address, where)
        # The other one has the annotation.
        assert reaches(host, CLIENT, outside, port)
    assert reaches(host, CLIENT, outside, api)


def reaches(host: GuestHost, name: str, address: str, port: int) -> bool:
    """Return whether a server ends the connection of a guest that talks nonsense to it."""
    script = f"echo hello | nc -w {SECONDS} {address} {port} > /dev/null; echo $?"
    return host.shell(name, script) == "0"


@contextlib.contextmanager
def greeting(address: str) -> Iterator[int]:
    """Serve a line of text on an address of our own link, which others do not reach."""

    class Greeting(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"hello\n")

    with socketserver.TCPServer((address, 0), Greeting) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_a_guest_cannot_use_the_address_of_another(host: GuestHost) -> None:
    web, client = (interface_of(host, name)["ipAddress"] for name in (WEB, CLIENT))
    spoof = (
        f"ip addr add {client}/32 dev lo;"
        f" ping -c 2 -W 2 -I {client} {link_address(host)} > /dev/null && echo sent || echo no;"
        f" ip addr del {client}/32 dev lo"
    )
    assert host.shell(WEB, spoof) == "no"
    assert host.shell(
        WEB, f"ping -c 3 -W 5 -I {web} {link_address(host)} > /dev/null; echo $?"
    ) == ("0")


def test_a_service_is_reached_by_name_and_follows_readiness(host: GuestHost) -> None:
    exposed = ("virtctl", "expose", "vm", WEB, "--name", "front", "--type", "NodePort")
    host.run(*exposed, "--port", "80", "--target-port", str(SERVED))
    headless = ("virtctl", "expose", "vm", WEB, "--name", "alone", "--cluster-ip", "None")
    host.run(*headless, "--port", "80")
    service = "api/v1/namespaces/default/services/front"
    until("an address", lambda: host.read(service)["spec"].get("clusterIP"), 30)
    spec = host.read(service)["spec"]
    own = interface_of(host, WEB)["ipAddress"]
    for name, address in (
        (f"front.{SERVICES}", spec["clusterIP"]),
        (f"alone.{SERVICES}", own),
        (f"{WEB}.default.vm.cluster.local", own),
    ):
        resolve = f"nslookup -type=a {name} | grep -c 'Address: {address}' || true"
        until(f"{name} in a guest", lambda what=resolve: host.shell(CLIENT, what) == "1", 60)
    by_name = f"timeout {SECONDS} wget -q -O - http://front.{SERVICES}/page || true"
    until("the Service in a guest", lambda: host.shell(CLIENT, by_name) == PAGE, 100)
    until("the Service in itself", lambda: host.shell(WEB, by_name) == PAGE, 100)
    reached = (spec["clusterIP"], 80), ("127.0.0.1", spec["ports"][0]["nodePort"])
    for place in reached:
        until(f"{place} from the host", lambda at=place: PAGE in fetch_from_host(*at), 60)
    host.run("virtctl", "pause", "vm", WEB)
    until("no endpoint", lambda: not _is_forwarded(host, own), 60)
    assert all(fetch_from_host(*place) == "" for place in reached)
    host.run("virtctl", "unpause", "vm", WEB)
    for place in reached:
        until(f"{place} again", lambda at=place: PAGE in fetch_from_host(*at), 100)


SERVICES = "default.svc.cluster.local"


def _is_forwarded(host: GuestHost, address: str) -> bool:
    """Return whether some rule of the namespace forwards to an address."""
    command = ["ip", "netns", "exec", links.namespace_name(name_of(host)), "nft", "list", "chain"]
    done = subprocess.run(
        [*command, "inet", "livevirt", "services"], capture_output=True, text=True, check=True
    )
    return address in done.stdout


def test_the_network_outlives_the_server_and_what_was_removed_comes_back(host: GuestHost) -> None:
    before, server = interface_of(host, WEB), dnsmasqs(host)
    assert len(server) == 1
    host.server.kill()
    try:
        assert PAGE in fetch_from_host(before["ipAddress"])
        subprocess.run(["ip", "link", "del", f"{links.PREFIX}{name_of(host)}"], check=True)
    finally:
        host.server.start()
    host.found(WEB)
    host.found(CLIENT)
    until("the link", lambda: PAGE in fetch_from_host(before["ipAddress"]))
    assert dnsmasqs(host) == server
    assert interface_of(host, WEB)["ipAddresses"][:2] == before["ipAddresses"][:2]
    everything_works(host)


def test_dnsmasq_is_confined_and_started_again(host: GuestHost) -> None:
    (pid,) = dnsmasqs(host)
    assert os.stat(f"/proc/{pid}").st_uid != 0
    assert "livevirt" in Path(f"/proc/{pid}/cgroup").read_text()
    os.kill(int(pid), signal.SIGKILL)
    until("another dnsmasq", lambda: dnsmasqs(host) not in ([], [pid]))
    host.shell(CLIENT, "udhcpc -q -n -t 10 -i eth0 -s /etc/udhcpc/default.script")
    everything_works(host)


def test_an_address_and_open_connections_move_with_a_guest(host: GuestHost) -> None:
    web = MovingGuest(host, a_connected_vm(WEB))
    before, node = interface_of(host, WEB), web.node
    with contextlib.ExitStack() as stack:
        address = interface_of(host, CLIENT)["ipAddress"]
        host.shell(CLIENT, "setsid nc -l -p 9000 -e cat < /dev/null > /dev/null 2>&1 &")
        client = MovingGuest(host, a_connected_vm(CLIENT))
        connection = until_connected(address, 9000)
        stack.enter_context(connection)
        echoed(connection, b"before")
        assert web.attempt("network-web")["status"]["phase"] == "Succeeded"
        assert client.attempt("network-client")["status"]["phase"] == "Succeeded"
        echoed(connection, b"after")
    assert web.node != node
    assert interface_of(host, WEB)["ipAddresses"][:2] == before["ipAddresses"][:2]
    everything_works(host)


def until_connected(address: str, port: int) -> socket.socket:
    opened: list[socket.socket] = []

    def connects() -> bool:
        with contextlib.suppress(OSError):
            opened.append(socket.create_connection((address, port), SECONDS))
        return bool(opened)

    until(f"{address} to listen", connects, 60)
    return opened[0]


def echoed(connection: socket.socket, line: bytes) -> None:
    connection.settimeout(60)
    connection.sendall(line)
    found = b""
    while len(found) < len(line):
        part = connection.recv(100)
        assert part, "the connection has ended"
        found += part
    assert found == line


def test_nothing_is_left_once_the_guests_are_stopped(host: GuestHost) -> None:
    name = name_of(host)
    assert namespace.exists(links.namespace_name(name))
    subprocess.run(
        [BIN / "livevirt", "down", "--data-dir", host.server.data, "--guests", "stop"],
        check=True, capture_output=True, timeout=200,
    )  # fmt: skip
    assert not namespace.exists(links.namespace_name(name))
    assert not Path(f"/sys/class/net/{links.PREFIX}{name}").exists()
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True)
    assert name not in tables.stdout
    assert dnsmasqs(host) == []
    host.server.stop()  # it is gone; its exit status is collected
    host.server.start()  # the fixture deletes the VMs through it
