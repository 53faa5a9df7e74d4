"""The reconcile loop: keys come in from informers, one reconcile per key at a time goes out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from livevirt.errors import Conflict, LivevirtError, Terminal
from livevirt.kube.control.cache import Change, Key, ToKeys, own_key
from livevirt.kube.control.informer import Informer
from livevirt.kube.control.queue import Queue, ShutDown

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """What a reconcile that did not fail asks for: nothing, or to be called again by then."""

    after: timedelta | None = None


DONE = Result()

Reconcile = Callable[[Key], Awaitable[Result]]


class Controller:
    """Calls `reconcile` for every key that may need it.

    What a reconcile raises decides what comes next: `Terminal` nothing, until something changes;
    `Conflict` another try at once, because another writer was faster; anything else another
    try after a wait that doubles each time.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        workers: int = 1,
        queue: Queue[Key] | None = None,
    ) -> None:
        self.name = name
        self.queue: Queue[Key] = Queue() if queue is None else queue
        self._reconcile = reconcile
        self._workers = workers
        self._informers: list[Informer] = []

    def watches(self, informer: Informer, keys: ToKeys = own_key) -> Controller:
        """Reconcile the keys that the mapping finds in an object whenever that changes.

        Of an update both sides are mapped, so that an object which changes its owner wakes the
        one that lost it too.
        """

        def wake(change: Change) -> None:
            sides = [side for side in (change.old, change.new) if side is not None]
            for key in dict.fromkeys(key for side in sides for key in keys(side)):
                self.queue.add(key)

        self._informers.append(informer)
        informer.on_change(wake)
        return self

    async def run(self) -> None:
        """Work until cancelled or the queue is shut down; begins when the informers are synced.

        A key whose reconcile is cancelled stays in the queue, so another `run` continues.
        """
        for informer in self._informers:
            await informer.synced.wait()
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name}-{number}")

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.get()
            except ShutDown:
                return
            try:
                await self._handle(key)
            except BaseException:
                self.queue.add(key)
                raise
            finally:
                self.queue.done(key)
            # A reconcile that had nothing to wait for, on a key that keeps coming back, would keep
            # everybody else from running.
            await asyncio.sleep(0)

    async def _handle(self, key: Key) -> None:
        try:
            result = await self._reconcile(key)
        except Terminal as error:
            self.queue.forget(key)
            log.error("reconcile gave up", extra=self._facts(key) | {"error": str(error)})
        except Conflict as error:
            self._again(key)
            log.debug("reconcile conflicted", extra=self._facts(key) | {"error": str(error)})
        except Exception as error:
            self._failed(key, error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # We were not cancelled: something the reconcile waited for was, which is its failure.
            self._failed(key, error)
        else:
            self.queue.forget(key)
            if result.after is not None:
                self.queue.add_after(key, result.after.total_seconds())

    def _again(self, key: Key) -> None:
        repeated = self.queue.failures(key) > 0
        wait = self.queue.fail(key)
        self.queue.add_after(key, wait if repeated else 0)  # a conflict that stays must not spin

    def _failed(self, key: Key, error: BaseException) -> None:
        wait = self.queue.retry(key)
        facts = self._facts(key) | {"error": str(error) or repr(error), "retry_in": wait}
        # Our own errors say what is wrong; of others we want to know where they came from.
        trace = None if isinstance(error, LivevirtError) else error
        log.warning("reconcile failed", extra=facts, exc_info=trace)

    def _facts(self, key: Key) -> dict[str, object]:
        return {"controller": self.name, "key": str(key)}


class Refused:
    """The keys of a controller whose last pass failed.

    The wait after a failure doubles up to many minutes. A change of what bounds their namespace
    ends it at once: a quota or LimitRange was changed, or a quota counts less than before. A change
    of a cluster-wide object, such as a PriorityClass, ends it in every namespace.
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
            if change.key.namespace in ("", key.namespace):
                self._controller.queue.add(key)
