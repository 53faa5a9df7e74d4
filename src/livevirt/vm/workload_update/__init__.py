"""The workload updater: gives guests other pods where theirs cannot be changed as needed.

It guarantees that a guest is migrated only if what it needs cannot happen where it is, and only by
a method that the KubeVirt object lists; that it is never shut down for a change of size; and that
a migration no longer needed is deleted, unless the guest has moved.
"""
