from ipaddress import IPv4Network, IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from livevirt.node.network import addresses
from livevirt.node.network.addresses import Block

MAC = "02:a3:d3:7a:26:1d"


def a_block(seed: str = "/var/lib/livevirt") -> Block:
    found = addresses.choose(seed, [])
    assert found is not None
    return found


def test_the_parts_of_a_block_do_not_overlap() -> None:
    block = a_block()
    links = IPv4Network(f"{block.link4[0]}/30", strict=False)
    parts = [block.guests4, block.services4, links]
    assert all(part.subnet_of(block.v4) for part in parts)
    assert not any(one.overlaps(two) for one in parts for two in parts if one != two)
    assert block.link4[1] in links
    parts6 = [block.guests6, block.services6]
    assert all(part.subnet_of(block.v6) for part in parts6)
    assert not block.guests6.overlaps(block.services6)
    assert block.link6[0] not in block.guests6


def test_a_data_directory_has_the_same_block_every_time_and_others_have_other_ones() -> None:
    assert a_block() == a_block()
    assert len({a_block(f"/tmp/{number}").v4 for number in range(20)}) > 15


@given(st.lists(st.integers(0, 2**8 - 1), max_size=200))
def test_a_block_is_clear_of_the_routes_of_the_host(numbers: list[int]) -> None:
    taken = [IPv4Network(f"10.{number}.0.0/16") for number in numbers]
    found = addresses.choose("some", taken)
    assert found is not None
    assert found.v4.is_private
    assert not any(found.v4.overlaps(other) for other in taken)


def test_there_is_no_block_where_all_private_networks_are_taken() -> None:
    everything = IPv4Network("0.0.0.0/0")
    assert addresses.choose("some", [everything]) is None
    outside_ten = addresses.choose("some", [IPv4Network("10.0.0.0/8")])
    assert outside_ten is not None
    assert not outside_ten.v4.overlaps(IPv4Network("10.0.0.0/8"))


def test_a_card_has_the_same_address_while_it_is_free() -> None:
    block = a_block()
    first = addresses.guest4(block, MAC, [])
    assert first == addresses.guest4(block, MAC, ["10.0.0.1"])
    second = addresses.guest4(block, MAC, [str(first)])
    assert second != first
    assert second in block.guests4


def test_no_guest_has_an_address_of_the_network_itself() -> None:
    block = a_block()
    reserved = {str(block.guests4[number]) for number in range(10)}
    everything = {str(each) for each in block.guests4.hosts()}
    assert str(block.gateway4) in reserved
    assert addresses.guest4(block, MAC, everything - reserved) is None


def test_the_ipv6_address_is_what_slaac_makes_of_the_hardware_address() -> None:
    block = a_block()
    found = addresses.guest6(block, MAC)
    assert found in block.guests6
    assert int(found) & (2**64 - 1) == int(IPv6Address("::a3:d3ff:fe7a:261d"))


def test_the_kernel_takes_the_names_of_links() -> None:
    assert len(f"lv-{addresses.name('/a' * 200)}") <= 15
    uid = "030d56d0-3c77-4e78-b7da-a3d2adc5ba70"
    assert len(addresses.tap_name(uid, 15)) <= 15
    assert addresses.tap_name(uid, 0) != addresses.tap_name(uid, 1)
