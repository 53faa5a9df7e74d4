"""expand-spec and expand-vm-spec: a VM that says everything itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from livevirt.errors import ApiError, BadRequest, Conflict, MethodNotAllowed, NotFound
from livevirt.kube.objects.request import ActionPath, Answer, Object
from livevirt.vm.kinds import CLUSTER_INSTANCETYPE, CLUSTER_PREFERENCE, VM
from livevirt.vm.subresources.router import Actions

from ...server_process import ServerProcess
from ..manifests import a_type, an_object, an_unsized_vm
from .catalog_server import ADMIN, SPACE, Server, a_server

PREFERRED = {"devices": {"preferredDiskBus": "virtio", "preferredInterfaceModel": "e1000e"}}
MATCHERS = {"instancetype": {"name": "small"}, "preference": {"name": "p"}}
TEMPLATE: Object = {
    "domain": {"devices": {}},
    "volumes": [{"name": "root", "containerDisk": {"image": "i"}}],
}


async def filled(server: Server) -> Server:
    await server.client.create(CLUSTER_INSTANCETYPE, a_type("small", 2, "1Gi"))
    preference = an_object(CLUSTER_PREFERENCE, "p", spec=PREFERRED)
    await server.client.create(CLUSTER_PREFERENCE, preference)
    return server


async def ask(
    server: Server, method: str, resource: str, name: str, verb: str, body: Any = None
) -> Object:
    actions = Actions(server.client, None)  # type: ignore[arg-type]
    action = ActionPath(resource, SPACE, name, verb)
    answer = await actions.handle(action, make_mocked_request(method, "/"), ADMIN, body)
    assert isinstance(answer, Answer)
    assert isinstance(answer.body, dict)
    return answer.body


async def expand(server: Server, vm: Any) -> Object:
    return await ask(server, "PUT", "", "", "expand-vm-spec", vm)


async def expand_stored(server: Server, name: str = "web") -> Object:
    return await ask(server, "GET", "virtualmachines", name, "expand-spec")


def check_expanded(vm: Object) -> None:
    assert "instancetype" not in vm["spec"]
    assert "preference" not in vm["spec"]
    spec = vm["spec"]["template"]["spec"]
    domain = spec["domain"]
    assert domain["cpu"] == {"sockets": 2, "cores": 1, "threads": 1}
    assert domain["memory"] == {"guest": "1Gi"}
    assert domain["devices"]["disks"] == [{"name": "root", "disk": {"bus": "virtio"}}]
    assert domain["devices"]["interfaces"] == [{"name": "default", "model": "e1000e"}]
    assert spec["networks"] == [{"name": "default", "pod": {}}]


async def test_a_stored_vm_is_expanded_and_stays_as_it_is() -> None:
    async with a_server() as server:
        await filled(server)
        await server.client.create(VM, an_unsized_vm(TEMPLATE, **MATCHERS), SPACE)
        before = server.read.get(VM, "web", SPACE)
        check_expanded(await expand_stored(server))
        assert server.read.get(VM, "web", SPACE) == before


async def test_a_vm_of_the_body_is_expanded_without_being_stored() -> None:
    async with a_server() as server:
        await filled(server)
        check_expanded(await expand(server, an_unsized_vm(TEMPLATE, **MATCHERS)))
        assert server.read.list(VM) == []


async def test_an_expanded_vm_can_be_created_and_expands_to_itself() -> None:
    async with a_server() as server:
        await filled(server)
        made = await expand(server, an_unsized_vm(TEMPLATE, **MATCHERS))
        await server.client.create(VM, made, SPACE)
        again = await expand_stored(server)
        assert again["spec"] == made["spec"]


async def test_a_vm_that_names_nothing_comes_back_as_it_is() -> None:
    template = {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}
    async with a_server() as server:
        await server.client.create(VM, an_unsized_vm(template), SPACE)
        expanded, stored = await expand_stored(server), server.read.get(VM, "web", SPACE)
        for each in (expanded, stored):
            each["metadata"].pop("managedFields", None)
        assert expanded == stored


OWN_MEMORY: Object = {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}
CONFLICT = (
    "VM field(s) spec.template.spec.domain.memory.guest conflicts with selected instance type"
)
REFUSED: dict[str, tuple[Any, str]] = {
    "2.5 no body": (None, "empty request body"),
    "2.5 no object": ([], "Can not unmarshal Request body to struct, error: list is no object"),
    "2.5 no VM": ({"kind": "Pod", "spec": {}}, "Object is not a valid VirtualMachine"),
    "2.5 a VM of the wrong shape": (
        {**an_unsized_vm(), "spec": {"template": 1}}, "Object is not a valid VirtualMachine",
    ),
    "2.5 another namespace": (
        {**an_unsized_vm(), "metadata": {"name": "web", "namespace": "other"}},
        "VM namespace must be empty or default",
    ),
    "2.5 a conflict": (an_unsized_vm(OWN_MEMORY, instancetype={"name": "small"}), CONFLICT),
    "2.5 no such type": (
        an_unsized_vm(instancetype={"name": "gone"}),
        'virtualmachineclusterinstancetypes.instancetype.kubevirt.io "gone" not found',
    ),
    "2.1 a matcher that names nothing": (
        an_unsized_vm(instancetype={}),
        "Either Name or InferFromVolume should be provided within the InstancetypeMatcher",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "message"), REFUSED.values(), ids=REFUSED)
async def test_what_cannot_be_expanded_is_refused(body: Any, message: str) -> None:
    async with a_server() as server:
        await filled(server)
        with pytest.raises(BadRequest) as refusal:
            await expand(server, body)
        assert refusal.value.message == message


async def test_a_stored_vm_that_cannot_be_expanded_says_why() -> None:
    async with a_server() as server:
        await server.client.create(VM, an_unsized_vm(instancetype={"name": "gone"}), SPACE)
        with pytest.raises(Conflict, match='"gone" not found'):
            await expand_stored(server)


async def test_no_such_vm_and_the_wrong_method_are_refused() -> None:
    async with a_server() as server:
        with pytest.raises(NotFound):
            await expand_stored(server, "gone")
        with pytest.raises(MethodNotAllowed):
            await ask(server, "POST", "", "", "expand-vm-spec", an_unsized_vm())
        assert issubclass(MethodNotAllowed, ApiError)


def test_kubectl_expands_over_http(server: ServerProcess, namespace: str) -> None:
    # Made by a controller, and those begin after the verbs can be asked for.
    server.kubectl("wait", "--for=create", "serviceaccount/default", "-n", namespace)
    small = a_type("small", 2, "1Gi")
    small["kind"] = "VirtualMachineInstancetype"
    server.kubectl("apply", "-n", namespace, "-f", "-", input=json.dumps(small))
    matcher = {"name": "small", "kind": "virtualmachineinstancetype"}
    vm = an_unsized_vm(TEMPLATE, instancetype=matcher)
    root = f"/apis/subresources.kubevirt.io/v1/namespaces/{namespace}"
    made = server.kubectl("replace", "--raw", f"{root}/expand-vm-spec", "-f", "-",
                          input=json.dumps(vm))  # fmt: skip
    assert json.loads(made)["spec"]["template"]["spec"]["domain"]["memory"] == {"guest": "1Gi"}
    server.kubectl("apply", "-n", namespace, "-f", "-", input=json.dumps(vm))
    stored = server.kubectl("get", "--raw", f"{root}/virtualmachines/web/expand-spec")
    assert json.loads(stored)["spec"]["template"]["spec"]["domain"]["cpu"]["sockets"] == 2
