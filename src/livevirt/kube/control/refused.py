"""Who waits for room: keys whose writes the API server refused, woken when that may be over."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from livevirt.kube.control.cache import Change
from livevirt.kube.control.controller import Controller
from livevirt.kube.control.informer import Informer
from livevirt.kube.control.key import Key


class Refused:
    """The keys of a controller whose last pass failed.

    The wait after a failure doubles up to many minutes. A change of what bounds their namespace
    ends it at once: a quota or LimitRange was changed, or a quota counts less than before.
    """

    def __init__(self, controller: Controller, *bounds: Informer) -> None:
        self._controller = controller
        self._keys: set[Key] = set()
        for informer in bounds:
            informer.on_change(self._wake)

    @contextlib.contextmanager
    def unless_done(self, key: Key) -> Iterator[None]:
        """Keep the key if the pass in here fails; a change that comes meanwhile counts too."""
        self._keys.add(key)
        yield
        self._keys.discard(key)

    def _wake(self, change: Change) -> None:
        for key in self._keys:
            if key.namespace == change.key.namespace:
                self._controller.queue.add(key)
