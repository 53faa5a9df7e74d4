"""Manifests made from flags."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from livevirt.cli.virtctl import cli
from livevirt.cli.vm.flags import FlagError, params
from livevirt.kube.objects import structural
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds


def run(*args: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["create", *args])
    assert done.exit_code == 0, done.output
    made: dict[str, Any] = yaml.safe_load(done.stdout)
    return made


def a_vm(*flags: str) -> dict[str, Any]:
    return run("vm", "--name=web", *flags)


def test_without_flags_it_is_the_smallest_vm_there_is() -> None:
    assert a_vm() == {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "web"},
        "spec": {
            "runStrategy": "Always",
            "template": {
                "metadata": {},
                "spec": {
                    "domain": {"devices": {}, "memory": {"guest": "512Mi"}, "resources": {}},
                    "terminationGracePeriodSeconds": 180,
                },
            },
        },
        "status": {},
    }


def test_names_are_made_up_and_namespaces_only_given() -> None:
    made = [run("vm")["metadata"]["name"] for _ in range(2)]
    assert made[0] != made[1]
    assert all(name.startswith("vm-") and len(name) == 8 for name in made)
    assert a_vm("-n", "mine")["metadata"] == {"name": "web", "namespace": "mine"}


DISK = {"name": "web-containerdisk-0", "containerDisk": {"image": "host:5000/a:1"}}
PVC = {"name": "b", "persistentVolumeClaim": {"claimName": "b"}}
DV = {"name": "c", "dataVolume": {"name": "c"}}
VOLUMES = {
    "a container disk": (["--volume-containerdisk=src:host:5000/a:1"], [DISK]),
    "container disks come before claims, claims before imports": (
        ["--volume-import=type:blank,size:1Gi,name:c", "--volume-pvc=src:b",
         "--volume-containerdisk=src:host:5000/a:1"],
        [DISK, PVC, DV],
    ),
    "sysprep": (
        ["--volume-sysprep=src:answers,type:secret"],
        [{"name": "sysprepdisk", "sysprep": {"secret": {"name": "answers"}}}],
    ),
    "cloud-init of one's own": (
        ["--cloud-init-user-data=Zm9v", "--cloud-init=configdrive"],
        [{"name": "cloudinitdisk", "cloudInitConfigDrive": {"userDataBase64": "Zm9v"}}],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("flags", "volumes"), VOLUMES.values(), ids=VOLUMES)
def test_volumes(flags: list[str], volumes: list[dict[str, Any]]) -> None:
    assert a_vm(*flags)["spec"]["template"]["spec"]["volumes"] == volumes


SIZE = {"resources": {"requests": {"storage": "5Gi"}}}
SOURCES = {
    "blank": ("type:blank,size:5Gi", {"storage": SIZE, "source": {"blank": {}}}),
    "http": (
        "type:http,size:5Gi,url:https://h:8/d.img,secretref:s",
        {"storage": SIZE, "source": {"http": {"url": "https://h:8/d.img", "secretRef": "s"}}},
    ),
    "registry": (
        "type:registry,size:5Gi,url:docker://livevirt/guest",
        {"storage": SIZE, "source": {"registry": {"url": "docker://livevirt/guest"}}},
    ),
    "pvc": (
        "type:pvc,src:ns/disk",
        {"storage": {"resources": {}}, "source": {"pvc": {"name": "disk", "namespace": "ns"}}},
    ),
    "data source": (
        "type:ds,src:golden",
        {"storage": {"resources": {}}, "sourceRef": {"kind": "DataSource", "name": "golden"}},
    ),
}


@pytest.mark.parametrize(("text", "spec"), SOURCES.values(), ids=SOURCES)
def test_imports_become_templates_of_data_volumes(text: str, spec: dict[str, Any]) -> None:
    made = a_vm(f"--volume-import={text},name:d")["spec"]
    assert made["dataVolumeTemplates"] == [{"metadata": {"name": "d"}, "spec": spec}]
    assert {"name": "d", "dataVolume": {"name": "d"}} in made["template"]["spec"]["volumes"]


def test_only_volumes_with_a_boot_order_get_a_disk() -> None:
    made = a_vm("--volume-pvc=src:a", "--volume-pvc=src:b,bootorder:2")
    devices = made["spec"]["template"]["spec"]["domain"]["devices"]
    assert devices == {"disks": [{"name": "b", "bootOrder": 2}]}


IGNORE = {"inferFromVolumeFailurePolicy": "Ignore"}
MATCHERS = {
    "a container disk says nothing about its size": (["--volume-containerdisk=src:a"], None, True),
    "a claim may say it, and memory stays in case it does not": (
        ["--volume-pvc=src:a"], {"inferFromVolume": "a", **IGNORE}, True,
    ),
    "the lowest boot order counts": (
        ["--volume-pvc=src:a", "--volume-pvc=src:b,bootorder:1"],
        {"inferFromVolume": "b", **IGNORE}, True,
    ),
    "who insists gets no memory": (
        ["--volume-pvc=src:a", "--infer-instancetype"], {"inferFromVolume": "a"}, False,
    ),
    "who insists on another volume": (
        ["--volume-pvc=src:a", "--volume-pvc=src:b", "--infer-instancetype-from=b"],
        {"inferFromVolume": "b"}, False,
    ),
    "a size of one's own": (["--volume-pvc=src:a", "--memory=1Gi"], None, True),
    "it can be switched off": (
        ["--volume-pvc=src:a", "--infer-instancetype=false"], None, True,
    ),
    "a name": (["--instancetype=small"], {"name": "small"}, False),
    "a kind and a name": (
        ["--instancetype=VirtualMachineInstancetype/small"],
        {"kind": "virtualmachineinstancetype", "name": "small"}, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("flags", "matcher", "memory"), MATCHERS.values(), ids=MATCHERS)
def test_instance_types(flags: list[str], matcher: dict[str, str] | None, memory: bool) -> None:
    spec = a_vm(*flags)["spec"]
    assert spec.get("instancetype") == matcher
    assert ("memory" in spec["template"]["spec"]["domain"]) is memory


CUSTOM = {
    "vCPUs alone": (["--vcpus=2"], {"cpu": {"guest": 2}, "memory": {"guest": "512Mi"}}, None),
    "beside an instance type that leaves its size open": (
        ["--vcpus=2", "--memory=1Gi", "--instancetype=m1.custom"],
        {"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}}, {"name": "m1.custom"},
    ),
    "beside one that leaves only vCPUs open": (
        ["--vcpus=2", "--instancetype=x"], {"cpu": {"guest": 2}}, {"name": "x"},
    ),
    "nothing is inferred then": (
        ["--vcpus=2", "--volume-pvc=src:a"],
        {"cpu": {"guest": 2}, "memory": {"guest": "512Mi"}}, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("flags", "sizes", "matcher"), CUSTOM.values(), ids=CUSTOM)
def test_sizes_of_the_vms_own(
    flags: list[str], sizes: dict[str, Any], matcher: dict[str, str] | None
) -> None:
    spec = a_vm(*flags)["spec"]
    domain = spec["template"]["spec"]["domain"]
    assert {name: domain[name] for name in ("cpu", "memory") if name in domain} == sizes
    assert spec.get("instancetype") == matcher


def test_a_login_becomes_cloud_init() -> None:
    made = a_vm("--user=me", "--ssh-key=ssh-ed25519 A: b", "--ga-manage-ssh")
    (volume,) = made["spec"]["template"]["spec"]["volumes"]
    text = volume["cloudInitNoCloud"]["userData"]
    assert text.startswith("#cloud-config\n")
    assert yaml.safe_load(text) == {
        "user": "me",
        "ssh_authorized_keys": ["ssh-ed25519 A: b"],
        "runcmd": [["setsebool", "-P", "virt_qemu_ga_manage_ssh", "on"]],
    }


CREDENTIALS = {
    "keys by the agent": (
        "src:s,user:me",
        {"sshPublicKey": {
            "source": {"secret": {"secretName": "s"}},
            "propagationMethod": {"qemuGuestAgent": {"users": ["me"]}},
        }},
    ),
    "a password": (
        "type:password,src:s",
        {"userPassword": {
            "source": {"secret": {"secretName": "s"}},
            "propagationMethod": {"qemuGuestAgent": {}},
        }},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "credential"), CREDENTIALS.values(), ids=CREDENTIALS)
def test_credentials(text: str, credential: dict[str, Any]) -> None:
    spec = a_vm(f"--access-cred={text}")["spec"]["template"]["spec"]
    assert spec["accessCredentials"] == [credential]


REFUSED = {
    "run strategy": (
        ["--run-strategy=x"],
        'failed to parse "--run-strategy" flag: invalid run strategy "x", supported values are:'
        " Always, Manual, Halted, Once, RerunOnFailure",
    ),
    "instance type's kind": (
        ["--instancetype=x/y"],
        'failed to parse "--instancetype" flag: invalid instancetype kind "x", supported values'
        " are: virtualmachineinstancetype, virtualmachineclusterinstancetype",
    ),
    "no parameters": (
        ["--volume-pvc=a"],
        'failed to parse "--volume-pvc" flag: params need to have at least one colon: a',
    ),
    "an unknown parameter": (
        ["--volume-pvc=src:a,colour:red"],
        'failed to parse "--volume-pvc" flag: unknown param(s): colour:red',
    ),
    "a boot order twice": (
        ["--volume-pvc=src:a,bootorder:1", "--volume-containerdisk=src:b,bootorder:1"],
        'failed to parse "--volume-pvc" flag: bootorder 1 was specified multiple times',
    ),
    "a boot order that is none": (
        ["--volume-pvc=src:a,bootorder:0"],
        'failed to parse "--volume-pvc" flag: bootorder must be greater than 0',
    ),
    "a boot order of other digits": (
        ["--volume-pvc=src:a,bootorder:\u0660"],
        'failed to parse "--volume-pvc" flag: bootorder must be greater than 0',
    ),
    "a boot order of many digits": (
        ["--volume-pvc=src:a,bootorder:" + "9" * 5000],
        'failed to parse "--volume-pvc" flag: bootorder must be at most 2147483647',
    ),
    "a boot order just too large": (
        ["--volume-pvc=src:a,bootorder:2147483648"],
        'failed to parse "--volume-pvc" flag: bootorder must be at most 2147483647',
    ),
    "a name twice": (
        ["--volume-pvc=src:a", "--volume-pvc=src:a"],
        'failed to parse "--volume-pvc" flag: there is already a volume with name "a"',
    ),
    "nothing to infer from": (
        ["--infer-instancetype"],
        'failed to parse "--infer-instancetype" flag: at least one volume is needed to infer an'
        " instance type or preference",
    ),
    "two sizes": (
        ["--memory=1Gi", "--instancetype=x"],
        "--memory and --instancetype exclude each other; give one of them",
    ),
    "a size that is none": (
        ["--memory=lots"],
        "failed to parse \"--memory\" flag: 'lots' is no size; write for example 512Mi or 10Gi",
    ),
    "an import without a size": (
        ["--volume-import=type:blank"],
        'failed to parse "--volume-import" flag: size must be specified',
    ),
    "a copy without a namespace": (
        ["--volume-import=type:pvc,src:a"],
        'failed to parse "--volume-import" flag: src: namespace of pvc a must be specified',
    ),
    "two kinds of user data": (
        ["--user=me", f"--cloud-init-user-data={base64.b64encode(b'x').decode()}"],
        'failed to parse "--cloud-init-user-data" flag: it excludes --user, --password-file,'
        " --ssh-key, --ga-manage-ssh",
    ),
}


@pytest.mark.parametrize(("flags", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(flags: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, ["create", "vm", *flags])
    assert done.exit_code == 1
    assert done.stderr == f"Error: {message}\n"


def test_instance_types_and_preferences() -> None:
    made = run("instancetype", "--name=s", "--cpu=2", "--memory=1Gi", "--gpu=name:g,devicename:d")
    assert made == {
        "apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": "VirtualMachineClusterInstancetype",
        "metadata": {"name": "s"},
        "spec": {
            "cpu": {"guest": 2},
            "memory": {"guest": "1Gi"},
            "gpus": [{"name": "g", "deviceName": "d"}],
        },
    }
    made = run("preference", "-n=mine", "--cpu-topology=spread", "--machine-type=q35")
    assert made["kind"] == "VirtualMachinePreference"
    assert made["metadata"]["name"].startswith("preference-")
    assert made["spec"] == {
        "cpu": {"preferredCPUTopology": "spread"},
        "machine": {"preferredMachineType": "q35"},
    }


OPEN_SIZES: dict[str, tuple[list[str], Object]] = {
    "both": ([], {}),
    "vCPUs": (["--memory=1Gi"], {"memory": {"guest": "1Gi"}}),
    "memory": (["--cpu=2", "--iothreadspolicy=auto"],
               {"cpu": {"guest": 2}, "ioThreadsPolicy": "auto"}),
}  # fmt: skip


@pytest.mark.parametrize(("flags", "spec"), OPEN_SIZES.values(), ids=OPEN_SIZES)
def test_an_instance_type_may_leave_sizes_to_its_vms_in_the_version_that_allows_it(
    flags: list[str], spec: Object
) -> None:
    made = run("instancetype", "--name=open", *flags)
    assert (made["apiVersion"], made["spec"]) == ("instancetype.kubevirt.io/v1beta2", spec)
    kind = kinds.CLUSTER_INSTANCETYPE
    assert structural.validate(kind.schema("v1beta2"), made) == []
    assert structural.validate(kind.schema("v1beta1"), made) != []


def test_an_instance_type_without_vcpus_is_not_one_with_none() -> None:
    done = CliRunner().invoke(cli, ["create", "instancetype", "--cpu=0", "--memory=1Gi"])
    assert done.exit_code == 1
    assert "cpu value must be greater than zero" in done.stderr


names = st.text("abcdef", min_size=1, max_size=5)
values = st.text(
    st.characters(codec="ascii", exclude_characters=",", categories=["L", "N", "P"]), min_size=1
)


@given(st.dictionaries(names, values, min_size=1))
def test_parameters_are_read_as_they_were_written(written: dict[str, str]) -> None:
    text = ",".join(f"{name}:{value}" for name, value in written.items())
    assert params("flag", text, list(written)) == written
    with pytest.raises(FlagError, match="unknown param"):
        params("flag", text, list(written)[1:])
