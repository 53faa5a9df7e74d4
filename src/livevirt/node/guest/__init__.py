"""One running QEMU and its guest, followed from when it is known until it has ended.

`Guest` is what the rest of the node uses. It is made of `QmpConnection` (the session with QEMU and
what it reports), `AgentPoller` (what the guest agent reports) and `View` (both, at one moment). A
guest found at start and one just started are treated alike. None of them decides anything: when the
view changes they wake the reconciler that does.
"""

from livevirt.node.guest.guest import QUIT_SECONDS, Guest
from livevirt.node.guest.view import NOTHING_YET, AgentView, View, snapshot

__all__ = ["NOTHING_YET", "QUIT_SECONDS", "AgentView", "Guest", "View", "snapshot"]
