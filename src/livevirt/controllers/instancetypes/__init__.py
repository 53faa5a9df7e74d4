"""What the VM controller asks about instance types and preferences.

It promises: a VM goes on as one that says its sizes itself; a revision is stored before anything
refers to it, and none is ever deleted here, so that a VM can go back; the VM's spec is rewritten
only where the cluster's reference policy says so.
"""

from livevirt.controllers.instancetypes.sizing import KINDS, Sized, Sizes
from livevirt.controllers.instancetypes.users import users

__all__ = ["KINDS", "Sized", "Sizes", "users"]
