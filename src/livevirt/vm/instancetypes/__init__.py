"""What the VM controller asks about instance types and preferences.

It promises: a VM goes on as one that says its sizes itself; a revision is stored before anything
refers to it, and none that a VM has taken is ever deleted here, so that it can go back; the VM's
spec is rewritten only where the cluster's reference policy says so.
"""

from livevirt.vm.instancetypes.sizing import KINDS, Sized, Sizes
from livevirt.vm.instancetypes.users import goes_by, is_missed, users

__all__ = ["KINDS", "Sized", "Sizes", "goes_by", "is_missed", "users"]
