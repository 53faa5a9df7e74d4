"""The migration controller: moves a guest to another node, one step at a time.

It guarantees that a migration never has two target pods, that no more migrations run in parallel
than the limits allow, and that a final migration stays final. It hands a guest over to its nodes
and then only watches: from the handoff on the nodes alone decide where the guest runs, and a
cancelled migration is asked to stop, never deleted under them. Each step can be derived from the
objects, so a controller that dies anywhere continues where it was.

Read it in this order: `controller` reconciles; `observation` builds a `snapshot` and the `queue`
from the `caches`; `phases` and `plan` decide, both pure; `actions` writes `status` and pods.
"""
