"""The VMI controller: gives each instance a pod, tells how far it is, and ends it.

It promises: an instance never has two pods; a pod of an instance that is deleted is deleted; an
instance goes when its pods are gone. What happens once the guest runs is the node's to tell.
"""
