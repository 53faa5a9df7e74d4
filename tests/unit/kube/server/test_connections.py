from __future__ import annotations

import pytest

from livevirt.errors import Forbidden
from livevirt.kube.server import origin
from livevirt.kube.server.connections import Connections


def test_given_many_connections_without_certificate_then_there_is_room_for_those_with_one() -> None:
    limits = Connections(most=6, most_without_certificate=4, most_of_peer=3)
    assert [limits.admit("a", False) for _ in range(4)] == [True, True, True, False]
    assert [limits.admit("b", False) for _ in range(2)] == [True, False]
    assert [limits.admit("a", True) for _ in range(3)] == [True, True, False]
    assert (limits.open, limits.refused) == (6, 3)


def test_given_connections_end_then_others_take_their_place() -> None:
    limits = Connections(most=2, most_without_certificate=1, most_of_peer=1)
    assert limits.admit("a", False)
    assert not limits.admit("b", False)
    limits.leave("a", False)
    assert limits.admit("b", False)
    assert limits.admit("b", True)
    assert not limits.admit("b", True)
    limits.leave("b", True)
    assert limits.admit("c", True)


@pytest.mark.parametrize("host", ["", "127.0.0.1:6443", "[::1]:6443", "localhost", "Node.example"])
def test_given_an_own_name_or_an_address_then_it_is_accepted(host: str) -> None:
    origin.check({"Host": host} if host else {}, frozenset({"node.example"}))


@pytest.mark.parametrize("host", ["attacker.example", "localhost.attacker.example:6443", "127.1"])
def test_given_another_name_then_it_is_refused(host: str) -> None:
    with pytest.raises(Forbidden):
        origin.check({"Host": host}, frozenset())
