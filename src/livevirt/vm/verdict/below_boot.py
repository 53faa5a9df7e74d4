"""The rule on memory below the size at boot, which a running guest gives back to its balloon."""

from __future__ import annotations

from livevirt.kube.objects.quantity import Format, Quantity, parse
from livevirt.vm.sizing import guest_size
from livevirt.vm.spec import sizes
from livevirt.vm.verdict.comparison import Comparison
from livevirt.vm.verdict.judgement import Reason, Ruling, Verdict

#: A guest keeps at least one part in so many: its kernel's tables are made for all of it.
SHARE = 4
LEAST = parse("128Mi")
_FORMAT = Format.BINARY_SI


def floor(boot: Quantity) -> Quantity:
    """Return the least memory that a guest started with so much can be brought to."""
    share = Quantity(-(-boot.nano // (SHARE * sizes.BLOCK.nano)) * sizes.BLOCK.nano, _FORMAT)
    return min(max(share, LEAST), boot)


def rule(comparison: Comparison, boot: Quantity, running: Quantity, wanted: Quantity) -> Ruling:
    """Rule on a size below the one at boot."""
    vmi = comparison.inputs.vmi or {}

    def restart(reason: Reason, message: str, nearest: Quantity = boot) -> Ruling:
        shown = str(nearest) if nearest != running else None
        return Ruling(Verdict.RESTART, reason, message, shown)

    problem = sizes.hotplug_problem(comparison.running, boot, boot)
    if problem:
        return Ruling(Verdict.RESTART, Reason.NOT_ELIGIBLE, problem)
    if comparison.running.page is not None:
        message = "a guest in huge pages cannot have less than it was started with"
        return restart(Reason.BELOW_BOOT, message)
    if not guest_size.has_balloon(vmi):
        message = f"the guest was started with {boot} and without a balloon to give some back"
        return restart(Reason.BELOW_BOOT, message)
    if not guest_size.has_balloon_statistics(vmi):
        message = (
            "the guest's balloon driver does not report free memory, so nothing can be taken safely"
        )
        return restart(Reason.NO_STATISTICS, message)
    least = floor(boot)
    if wanted < least:
        message = f"a guest started with {boot} can be brought to {least}, not below"
        return restart(Reason.BELOW_BOOT, message, least)
    if wanted.nano % sizes.BLOCK.nano:
        message = f"memory changes in blocks of {sizes.BLOCK}"
        lower = Quantity(wanted.nano // sizes.BLOCK.nano * sizes.BLOCK.nano, _FORMAT)
        return restart(Reason.UNALIGNED, message, max(lower, least))
    message = "the guest gives memory back as far as it has it free; a margin stays"
    if wanted.bytes > comparison.has.memory:
        message = "the guest gets memory back that it gave up"
    return Ruling(Verdict.LIVE, Reason.IN_PLACE, message)
