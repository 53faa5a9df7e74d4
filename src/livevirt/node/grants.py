"""What a node has granted to its pods, added up as they change and not anew for each question."""

from __future__ import annotations

from livevirt.kube.control.cache import Change
from livevirt.kube.control.key import Key
from livevirt.kube.objects.node_share import NOTHING, Share, granted


class Grants:
    """The shares of one node's pods, as far as it has said yes to them.

    Give `note` every change of them. A grant counts from the moment it is given: whoever asks
    before it shows in the pod's status must not be given the same room.
    """

    def __init__(self) -> None:
        self._of: dict[Key, Share] = {}
        self._total = NOTHING

    def beside(self, key: Key) -> Share:
        """Return what all pods but that one have."""
        return self._total - self._of.get(key, NOTHING)

    def grant(self, key: Key, share: Share) -> None:
        """Let a pod have so much from now on."""
        self._total = self._total - self._of.get(key, NOTHING) + share
        self._of[key] = share

    def note(self, change: Change) -> None:
        """Take in what a pod has become."""
        self.grant(change.key, NOTHING if change.new is None else granted(change.new))
        if change.new is None:
            del self._of[change.key]
