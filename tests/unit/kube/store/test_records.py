"""Changes as watchers see them."""

from __future__ import annotations

from livevirt.kube.store.records import Event, Key


def test_a_decoded_object_has_no_managed_fields_and_its_bytes_have() -> None:
    value = b'{"metadata":{"name":"a","managedFields":[{}]}}'
    event = Event(1, "ADDED", Key("configmaps", "ns", "a"), value, None)
    assert event.object == {"metadata": {"name": "a"}}
    assert event.value == value
