"""The workload updater: gives guests other pods where theirs cannot become what they must be.

It promises: a guest is moved only if what it needs cannot happen where it is, and only by a method
that the KubeVirt object lists; it is never ended for the sake of a size; a move that nobody needs
any more is called off, unless the guest has arrived.
"""
