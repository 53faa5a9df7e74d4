"""Laws of the verdict: equal texts are no change, reverts clear, live changes settle."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from livevirt.kube.objects.merge_patch import apply
from livevirt.kube.objects.quantity import parse
from livevirt.kube.objects.request import Object
from livevirt.vm.config.settings import Config
from livevirt.vm.spec.effective import canonical, filled, refilled
from livevirt.vm.verdict.judgement import Judgement, Verdict
from livevirt.vm.verdict.live_patch import live_patch
from livevirt.vm.verdict.summary import condition, pending
from livevirt.vm.verdict.verdict import judge
from livevirt.vm.verdict.verdict_inputs import VerdictInputs

from ..cases import GONE, KVM, LIVE, STAGE, TCG, Around, a_claim, a_spec, edited, judged, running

Rewrite = Callable[[Object, Object, Any], None]  # the text, what runs, and choices to draw

OPTIONS: dict[str, list[Any]] = {
    "domain.cpu": [GONE, {}, {"cores": 2}, {"sockets": 2, "threads": 2}, {"model": "host-model"}],
    "domain.memory.guest": ["512Mi", "1Gi", "2Gi", "1000M"],
    "domain.resources": [
        {},
        {"requests": {"cpu": "500m", "memory": "1Gi"}},
        {"limits": {"cpu": "3"}},
    ],
    "nodeSelector": [{}, {"zone": "a"}, {"zone": "b", "disk": "ssd"}],
    "tolerations": [[], [{"key": "a"}, {"key": "b", "effect": "NoSchedule"}]],
    "evictionStrategy": ["None", "LiveMigrate"],
    "terminationGracePeriodSeconds": [0, 30, 60],
    "domain.devices.autoattachGraphicsDevice": [True, False],
    "domain.devices.rng": [{}],
    "volumes.1": [a_claim("data"), a_claim("data", "other")],
    "hostname": ["", "web"],
}


@st.composite
def edits(draw: st.DrawFn, most: int = 6) -> dict[str, Any]:
    paths = draw(st.lists(st.sampled_from(sorted(OPTIONS)), max_size=most, unique=True))
    return {path: draw(st.sampled_from(OPTIONS[path])) for path in sorted(paths)}


specs = st.builds(lambda chosen: edited(a_spec(), chosen), edits())
configs = st.sampled_from([LIVE, STAGE])
places = st.sampled_from([KVM, TCG, Around()])


def respell(spec: Object, vmi: Object, draw: Any) -> None:
    amount = parse(spec["domain"]["memory"]["guest"])
    ways = [str(amount.bytes), amount.bytes, f"{amount.bytes / 2**20:.6f}Mi"]
    ways = [way for way in ways if parse(way) == amount]
    spec["domain"]["memory"]["guest"] = draw(st.sampled_from(ways))


def write_topology(spec: Object, vmi: Object, draw: Any) -> None:
    there = vmi["spec"]["domain"]["cpu"]
    cpu = spec["domain"].setdefault("cpu", {})
    if not any(cpu.get(part) for part in ("sockets", "cores", "threads")):
        cpu["sockets"] = there["sockets"]
    for part in draw(st.sets(st.sampled_from(["sockets", "cores", "threads", "model"]))):
        cpu[part] = there[part]


def shuffle(spec: Object, vmi: Object, draw: Any) -> None:
    devices = spec["domain"]["devices"]
    for holder, name in (
        (spec, "volumes"), (spec, "networks"), (spec, "tolerations"), (devices, "disks"),
        (devices, "interfaces"),
    ):  # fmt: skip
        if holder.get(name):
            holder[name] = draw(st.permutations(holder[name]))


def say_nothing(spec: Object, vmi: Object, draw: Any) -> None:
    spec.setdefault("subdomain", None)
    spec.setdefault("affinity", draw(st.sampled_from([None, {}, {"nodeAffinity": {}}])))
    spec.setdefault("nodeSelector", draw(st.sampled_from([None, {}])))
    spec["domain"].setdefault("resources", {}).setdefault("requests", {})
    spec["domain"].setdefault("firmware", draw(st.sampled_from([None, {}])))
    spec["domain"]["devices"].setdefault("blockMultiQueue", draw(st.sampled_from([None, False])))


def write_what_runs(spec: Object, vmi: Object, draw: Any) -> None:
    there = vmi["spec"]
    for name in draw(
        st.sets(
            st.sampled_from(["architecture", "evictionStrategy", "terminationGracePeriodSeconds"])
        )
    ):
        spec[name] = there[name]
    for name in draw(st.sets(st.sampled_from(["machine", "firmware", "features", "memory"]))):
        spec["domain"][name] = copy.deepcopy(there["domain"][name])


def write_all_that_runs(spec: Object, vmi: Object, draw: Any) -> None:
    spec.clear()
    spec.update(copy.deepcopy(vmi["spec"]))


def write_usual(spec: Object, vmi: Object, draw: Any) -> None:
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec["domain"]["rebootPolicy"] = "Reboot"
    spec["domain"]["devices"]["autoattachSerialConsole"] = True
    for disk in spec["domain"]["devices"]["disks"]:
        disk.setdefault("errorPolicy", "stop")
        if "cdrom" in disk:
            disk["cdrom"] = {**disk["cdrom"], "readonly": True, "tray": "closed"}


@given(specs, specs)
def test_a_spec_is_filled_in_the_same_by_way_of_another(one: Object, other: Object) -> None:
    """Also where they differ in size alone, which is what the other way is for."""
    config, resized = LIVE.without_maxima(LIVE.defaults, "None"), copy.deepcopy(one)
    for part in ("cpu", "memory", "resources"):
        resized["domain"].pop(part, None)
        if part in other["domain"]:
            resized["domain"][part] = other["domain"][part]
    for wanted in (one, other, resized):
        expected, before = filled(wanted, "vm-uid", config), copy.deepcopy((one, wanted))
        started = filled(one, "vm-uid", config)
        found = refilled(wanted, "vm-uid", config, twin=one, as_filled=started)
        assert found == expected
        assert started == filled(one, "vm-uid", config)
        assert (one, wanted) == before


def with_nulls(value: Any) -> Any:
    """Return the same with a null in every part."""
    if isinstance(value, dict):
        return {**{name: with_nulls(inner) for name, inner in value.items()}, "nothing": None}
    return [with_nulls(item) for item in value] if isinstance(value, list) else value


@given(specs, specs, configs)
def test_nulls_in_what_runs_say_nothing(started: Object, wanted: Object, config: Config) -> None:
    vmi = running(started)
    written = {**vmi, "spec": with_nulls(vmi["spec"])}
    for part in ("ioThreads", "launchSecurity", "chassis"):
        written["spec"]["domain"].setdefault(part, None)
    before = copy.deepcopy(written)
    found, expected = (
        {
            change.path: (change.running, change.wanted, change.verdict, change.reason)
            for change in judged(started, wanted, config=config, vmi=each).changes
        }
        for each in (written, vmi)
    )
    assert found == expected
    assert written == before


rewrites = st.lists(
    st.sampled_from(
        [respell, write_topology, shuffle, say_nothing, write_what_runs, write_usual,
         write_all_that_runs]
    ),
    min_size=1,
    max_size=5,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(specs, rewrites, configs, configs, places, st.data())
def test_the_same_machine_in_other_words_is_no_change(
    spec: Object, chosen: list[Rewrite], at_start: Config, now: Config, around: Around, data: Any
) -> None:
    vmi = running(spec, at_start)
    wanted = copy.deepcopy(spec)
    for rewrite in chosen:
        rewrite(wanted, vmi, data.draw)

    assert judge(VerdictInputs(spec, wanted, vmi, now, **around)).changes == ()


@settings(max_examples=100, deadline=None)
@given(specs, edits(), configs, places)
def test_an_edit_and_its_revert_are_no_change_and_leave_no_condition(
    spec: Object, change: dict[str, Any], config: Config, around: Around
) -> None:
    vmi = running(spec)
    before = copy.deepcopy((spec, vmi))
    judge(VerdictInputs(spec, edited_safely(spec, change), vmi, config, **around))

    reverted = judge(VerdictInputs(spec, spec, vmi, config, **around))

    assert (spec, vmi) == before  # judging changes nothing
    assert (reverted.changes, condition(reverted), pending(reverted)) == ((), None, ([], 0))


@settings(max_examples=150, deadline=None)
@given(specs, edits(), places)
def test_following_the_live_patch_settles(
    spec: Object, change: dict[str, Any], around: Around
) -> None:
    vmi, wanted = running(spec), edited_safely(spec, change)
    first = judge(VerdictInputs(spec, wanted, vmi, LIVE, **around))

    vmi = apply(live_patch(first, vmi), vmi)
    second = judge(VerdictInputs(spec, wanted, vmi, LIVE, **around))

    assert not [c for c in second.changes if c.live and not c.volume]
    assert live_patch(second, vmi) == {}
    assert bool(second.of(Verdict.RESTART)) == bool(first.of(Verdict.RESTART))
    back = judge(VerdictInputs(spec, spec, vmi, LIVE, **KVM))
    assert not back.of(Verdict.RESTART)  # what went live goes back live
    home = apply(live_patch(back, vmi), vmi)
    assert judge(VerdictInputs(spec, spec, home, LIVE, **KVM)).changes == ()
    assert canonical(home["spec"]) == canonical(running(spec)["spec"])


@settings(max_examples=100, deadline=None)
@given(specs, specs)
def test_there_and_back_name_the_same_fields(one: Object, other: Object) -> None:
    there, back = judged(one, other), judged(other, one)

    def seen(judgement: Judgement) -> dict[str, tuple[str, str]]:
        return {c.path: (repr(c.running), repr(c.wanted)) for c in judgement.changes}

    swapped = {path: (wanted, ran) for path, (ran, wanted) in seen(back).items()}
    assert seen(there) == swapped


@settings(max_examples=100, deadline=None)
@given(specs, edits(), places)
def test_one_restart_and_nothing_but_volumes_is_live(
    spec: Object, change: dict[str, Any], around: Around
) -> None:
    found = judge(VerdictInputs(spec, edited_safely(spec, change), running(spec), LIVE, **around))

    if found.of(Verdict.RESTART):
        assert all(c.volume or not c.live for c in found.changes)
        assert live_patch(found, running(spec)) == {}
    if found.verdict is Verdict.LIVE:
        assert condition(found) is None


@settings(max_examples=100, deadline=None)
@given(specs, edits())
def test_stage_leaves_only_volumes_live(spec: Object, change: dict[str, Any]) -> None:
    found = judged(spec, edited_safely(spec, change), config=STAGE)

    assert all(c.volume or c.verdict is Verdict.RESTART for c in found.changes)


def edited_safely(spec: Object, change: dict[str, Any]) -> Object:
    """Return the edited spec; removing what is not there is no edit."""
    there = {path: value for path, value in change.items() if value is not GONE or _has(spec, path)}
    return edited(spec, there)


def _has(spec: Object, path: str) -> bool:
    found: Any = spec
    for part in path.split("."):
        if not isinstance(found, dict) or part not in found:
            return False
        found = found[part]
    return True
