"""Who runs launcher pods: livevirt's own node agent, or the kubelet of a cluster.

A controller makes a pod as `launcher.pod_of` returns it and passes it to its runtime, which is
chosen once, where the controllers are put together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from livevirt.kube.control.runtime import InformerReader, Informers
from livevirt.kube.objects import core
from livevirt.kube.objects.request import Object
from livevirt.vm import kinds
from livevirt.vm.config import settings
from livevirt.vm.lifecycle.vmi import kubelet_pod, launcher


class PodRuntime(Protocol):
    """What launcher pods depend on besides their instances."""

    @property
    def image(self) -> str:
        """The image of new pods; a guest in a pod of another one is outdated."""

    def complete(self, pod: Object, vmi: Object) -> Object:
        """Return the pod to create."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """Livevirt's node agent, which needs only what `launcher.pod_of` returns."""

    image: str = launcher.IMAGE

    def complete(self, pod: Object, vmi: Object) -> Object:
        """Return the pod as it is."""
        return pod


EMBEDDED = Embedded()


class Kubelet:
    """The kubelets of a cluster."""

    def __init__(self, image: str, informers: Informers) -> None:
        """Use an image of livevirt for the pods, and what informers know about the cluster."""
        self._image = image
        self._reader = InformerReader(informers, core.CLAIM, kinds.KUBEVIRT)

    @property
    def image(self) -> str:
        """The image of new pods."""
        return self._image

    async def wait_synced(self) -> None:
        """Wait until pods can be completed."""
        await self._reader.wait_synced()

    def complete(self, pod: Object, vmi: Object) -> Object:
        """Return the pod with everything that a kubelet needs to run it."""
        namespace = vmi["metadata"]["namespace"]
        claims = (self._reader.get(core.CLAIM, n, namespace) for n in launcher.claim_names(vmi))
        facts = kubelet_pod.facts(
            claims,
            self._reader.get(kinds.KUBEVIRT, settings.NAME, settings.NAMESPACE),
            self._reader.list(core.NODE),
        )
        return kubelet_pod.complete(pod, vmi, self._image, facts)
