"""Becomes QEMU. Run as a script by `process.spawn`, so it needs nothing but the standard library.

It enters the pod's cgroups first, so that every byte QEMU ever uses is counted there, then leaves
a process behind that gives up its rights and becomes QEMU. That process is no child of ours: the
node agent may end at any time, and a guest it started is watched like one it found.

Reads an order from standard input, prints the process id. Errors before that go to
standard error by the status 1; what goes wrong after is in QEMU's log.

A guest that moves waits for this, so it imports next to nothing: the order is marshalled, by the
same interpreter, because reading JSON takes as long as all the rest.
"""

import marshal
import os
import resource
import sys


def main() -> None:
    order = marshal.loads(sys.stdin.buffer.read())
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
        os._exit(0)  # nothing is left to tidy up, and the caller waits for the end
    try:
        _confine(log, order["lock"], order["inherited"])
        if order["user"] is not None:
            _give_up_rights(order["user"], order["group"], order["groups"])
        # Not `execvpe`: to search a path it would import, which a user without rights may not.
        os.execve(order["program"], order["argv"], order["env"])
    except OSError as error:
        os.write(2, f"cannot start {order['argv'][0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _confine(log: int, lock: int, inherited: dict[int, int]) -> None:
    """Leave everything of ours behind but the log, the lock and what QEMU is to inherit.

    `inherited` has descriptors of ours by the numbers they are to have.
    """
    lock = _moved(lock, inherited)
    sources = {number: _moved(source, inherited) for number, source in inherited.items()}
    for number, source in sources.items():
        os.dup2(source, number)
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    # Event loops leave descriptors open in their children.
    first = 3
    for kept in sorted((lock, *inherited)):
        os.closerange(first, kept)
        first = kept + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _moved(source: int, reserved: dict[int, int]) -> int:
    """Return a descriptor of the same file with a number that is not reserved."""
    while source in reserved:
        source = os.dup(source)
    os.set_inheritable(source, True)
    return source


def _give_up_rights(user: int, group: int, groups: list[int]) -> None:
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


if __name__ == "__main__":
    main()
