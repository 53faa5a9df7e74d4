"""The local client builds the requests a server parses off HTTP, and reads the answers alike."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from livevirt.errors import Conflict, NotFound
from livevirt.kube.client.interface import Client, Patch
from livevirt.kube.client.local import LocalClient
from livevirt.kube.objects.core import NODE, POD
from livevirt.kube.objects.request import Answer, Object, Page, Request, User, WatchEvent
from livevirt.vm.kinds import INSTANCETYPE, VM

USER = User("system:serviceaccount:kubevirt:controller", ("system:authenticated",))
AN_OBJECT = {"metadata": {"name": "web", "namespace": "ns"}}


class Answering:
    """A handler that keeps the request and answers as told."""

    def __init__(self, answer: Answer | Exception | None = None) -> None:
        self.answer = answer or Answer(200, {})
        self.request: Request | None = None

    async def call(self, request: Request) -> Answer:
        self.request = request
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def watch(self, request: Request) -> AsyncIterator[WatchEvent]:
        self.request = request
        yield WatchEvent("ADDED", AN_OBJECT)
        if isinstance(self.answer, Exception):
            raise self.answer

    def asked(self) -> Request:
        assert self.request is not None
        return self.request


def a_client(handler: Answering) -> Client:
    return LocalClient(handler, USER, manager="controller")


async def test_get_asks_for_one_object_as_its_user() -> None:
    handler = Answering(Answer(200, AN_OBJECT))
    assert await a_client(handler).get(VM, "web", "ns") is AN_OBJECT
    assert handler.asked() == Request(
        "get", VM, "v1", USER, namespace="ns", name="web", manager="controller"
    )


async def test_an_answer_in_bytes_is_decoded() -> None:
    handler = Answering(Answer(200, msgspec.json.encode(AN_OBJECT)))
    assert await a_client(handler).get(VM, "web", "ns") == AN_OBJECT
    assert await a_client(Answering(Answer(200, b""))).create(VM, {}, "ns") == {}


async def test_objects_come_without_managed_fields() -> None:
    stored = {"metadata": {"name": "web", "managedFields": [{"manager": "m"}]}}
    client = a_client(Answering(Answer(200, msgspec.json.encode(stored))))
    assert await client.get(POD, "web", "ns") == {"metadata": {"name": "web"}}
    body = {"metadata": {"resourceVersion": "1"}, "items": [stored]}
    client = a_client(Answering(Answer(200, msgspec.json.encode(body))))
    (item,) = (await client.list(POD)).items
    assert item["metadata"] == {"name": "web"}


async def test_a_namespace_given_for_a_kind_without_one_is_left_out() -> None:
    handler = Answering()
    await a_client(handler).get(NODE, "n", "ns")
    assert handler.asked().namespace == ""


@pytest.mark.parametrize("encoded", [False, True])
async def test_list_returns_a_page_whose_items_say_their_kind(encoded: bool) -> None:
    full = {"apiVersion": "v1", "kind": "Pod"} | AN_OBJECT
    body: Any = {
        "apiVersion": "v1",
        "kind": "PodList",
        "metadata": {"resourceVersion": "7", "continue": "more"},
        "items": [AN_OBJECT, full],
    }
    handler = Answering(Answer(200, msgspec.json.encode(body) if encoded else body))
    page = await a_client(handler).list(POD, "ns", labels="a=b", fields="c=d", limit=5)
    assert page == Page([full, full], "7", "more")
    assert AN_OBJECT == {"metadata": {"name": "web", "namespace": "ns"}}  # not changed
    asked = handler.asked()
    assert asked.verb == "list"
    assert asked.options == {"labelSelector": "a=b", "fieldSelector": "c=d", "limit": "5"}


async def test_the_items_of_an_empty_list_may_be_null() -> None:
    handler = Answering(Answer(200, b'{"metadata":{"resourceVersion":"7"},"items":null}'))
    assert await a_client(handler).list(POD, continue_="token") == Page([], "7")
    assert handler.asked().options == {"continue": "token"}


async def test_watch_passes_on_the_handlers_events_and_refusals() -> None:
    handler = Answering(NotFound("gone"))
    events = a_client(handler).watch(VM, "ns", resource_version="5", labels="a=b")
    assert await anext(events) == WatchEvent("ADDED", AN_OBJECT)
    with pytest.raises(NotFound):
        await anext(events)
    assert handler.asked().options == {
        "watch": "true", "resourceVersion": "5", "allowWatchBookmarks": "true",
        "labelSelector": "a=b",
    }  # fmt: skip


async def test_create_takes_the_namespace_of_the_object_and_copies_it() -> None:
    handler = Answering()
    obj: Object = {"metadata": {"name": "web", "namespace": "ns"}, "spec": {"a": [1]}}
    await a_client(handler).create(VM, obj, dry_run=True)
    asked = handler.asked()
    assert (asked.verb, asked.namespace, asked.name) == ("create", "ns", "")
    assert asked.dry_run
    asked.body["spec"]["a"].append(2)
    assert obj["spec"] == {"a": [1]}


async def test_what_is_no_json_is_refused_before_it_reaches_the_server() -> None:
    handler = Answering()
    with pytest.raises(TypeError):
        await a_client(handler).create(VM, {"spec": object()}, "ns")
    assert handler.request is None


async def test_an_object_is_written_in_the_version_it_says() -> None:
    handler = Answering()
    obj = AN_OBJECT | {"apiVersion": "instancetype.kubevirt.io/v1beta1"}
    for write in (a_client(handler).create, a_client(handler).update):
        await write(INSTANCETYPE, obj)
        assert handler.asked().version == "v1beta1"
    await a_client(handler).create(INSTANCETYPE, AN_OBJECT)
    assert handler.asked().version == "v1beta2"


async def test_a_post_to_a_subresource_is_in_the_version_of_its_object() -> None:
    handler = Answering()
    binding = {"apiVersion": "v1", "kind": "Binding", "target": {"name": "node"}}
    await a_client(handler).create(POD, binding, "ns", name="pod", subresource="binding")
    asked = handler.asked()
    assert (asked.verb, asked.name, asked.subresource) == ("create", "pod", "binding")
    assert asked.body == binding


async def test_update_names_what_it_replaces() -> None:
    handler = Answering()
    await a_client(handler).update(VM, AN_OBJECT, subresource="status")
    asked = handler.asked()
    assert (asked.verb, asked.namespace, asked.name) == ("update", "ns", "web")
    assert asked.subresource == "status"


PATCHES = {
    "merge": ("application/merge-patch+json", {}),
    "json": ("application/json-patch+json", {}),
    "strategic": ("application/strategic-merge-patch+json", {}),
    "apply": ("application/apply-patch+yaml", {"fieldManager": "controller", "force": "true"}),
}


@pytest.mark.parametrize("type_", PATCHES)
async def test_patches_say_their_content_type(type_: Any) -> None:
    handler = Answering()
    patch = Patch(type_, {"spec": {}})
    await a_client(handler).patch(VM, "web", "ns", patch, subresource="status")
    asked = handler.asked()
    content_type, options = PATCHES[type_]
    assert (asked.verb, asked.patch, asked.options) == ("patch", content_type, options)
    assert (asked.namespace, asked.name, asked.subresource) == ("ns", "web", "status")


async def test_delete_carries_its_preconditions() -> None:
    handler = Answering()
    await a_client(handler).delete(
        VM, "web", "ns", uid="u", grace_seconds=0, propagation="Foreground"
    )
    asked = handler.asked()
    assert asked.verb == "delete"
    assert asked.body == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
    }
    await a_client(handler).delete(VM, "web", "ns")
    assert handler.asked().body == {"kind": "DeleteOptions", "apiVersion": "v1"}


async def test_delete_unchanged_names_the_version_that_was_read() -> None:
    handler = Answering()
    await a_client(handler).delete_unchanged(VM, "web", "ns", uid="u", resource_version="3")
    asked = handler.asked()
    assert (asked.verb, asked.name) == ("delete", "web")
    assert asked.body["preconditions"] == {"uid": "u", "resourceVersion": "3"}


async def test_refusals_come_through_as_they_are() -> None:
    handler = Answering(Conflict("read again"))
    with pytest.raises(Conflict, match="read again"):
        await a_client(handler).update(VM, AN_OBJECT)


async def test_warnings_reach_who_asked_for_them() -> None:
    seen: list[str] = []
    handler = Answering(Answer(200, {}, ("needs a restart",)))
    await LocalClient(handler, USER, warn=seen.append).create(VM, AN_OBJECT)
    assert seen == ["needs a restart"]


def test_neither_it_nor_the_controllers_parts_import_http_tls_or_yaml() -> None:
    code = """
import importlib, pkgutil, sys
import livevirt.kube.client.local, livevirt.kube.control
for module in pkgutil.iter_modules(livevirt.kube.control.__path__):
    importlib.import_module(f"livevirt.kube.control.{module.name}")
print(*{"aiohttp", "yaml", "kubernetes", "livevirt.kube.client.remote"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
