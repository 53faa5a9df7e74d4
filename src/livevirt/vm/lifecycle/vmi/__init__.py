"""The VMI controller: gives each instance a pod, reports its progress, and ends it.

It promises: an instance never has two pods; a pod of an instance that is deleted is deleted; an
instance goes when its pods are gone. Once the guest runs, the node reports its state.
"""
