"""What the VM controller asks about instance types and preferences.

It promises: a VM is treated as if it set its sizes itself; a revision is stored before anything
refers to it, and none that a VM has taken is ever deleted here, so that it can go back; the VM's
spec is rewritten only where the cluster's reference policy asks for it.
"""
