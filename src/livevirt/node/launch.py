"""Becomes QEMU. Run as a script by `process.spawn`, so it needs nothing but the standard library.

It enters the pod's cgroups first, so that every byte QEMU ever uses is counted there, then leaves
a process behind that gives up its rights and becomes QEMU. That process is nobody's child: the
node agent may end at any time, and a guest it started is watched like one it found.

Reads an order (JSON) from standard input, prints the process id. What goes wrong before is told
on standard error by the status 1; what goes wrong after is in QEMU's log.
"""

import json
import os
import resource
import sys
from typing import Any


def main() -> None:
    order: dict[str, Any] = json.load(sys.stdin)
    try:
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        for file in order["cgroups"]:
            with open(file, "w") as procs:
                procs.write("0")
        marker = os.open(order["marker"], os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.close(marker)
        pid = os.fork()
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    if pid:
        print(pid, flush=True)
        os._exit(0)  # nothing is left to tidy up, and somebody waits for the end
    try:
        _become(order, log)
    except OSError as error:
        os.write(2, f"cannot start {order['argv'][0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _become(order: dict[str, Any], log: int) -> None:
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    # QEMU gets nothing of ours but its lock: event loops leave descriptors open in their children.
    os.closerange(3, order["lock"])
    os.closerange(order["lock"] + 1, os.sysconf("SC_OPEN_MAX"))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if order["user"] is not None:
        os.setgroups(order["groups"])
        os.setresgid(*[order["group"]] * 3)
        os.setresuid(*[order["user"]] * 3)
    os.execvpe(order["argv"][0], order["argv"], order["env"])


if __name__ == "__main__":
    main()
