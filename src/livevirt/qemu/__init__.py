"""QEMU: describe a machine, start it, see what it is, change it while it runs. Knows no Kubernetes.

    machine, disk   what to start, plain data that is kept on disk
    cmdline         its command line; equal machines give equal lines
    programs        what of QEMU must be installed, and what to do if it is not
    accelerator     what guests can run on here, by running one
    session         QMP: commands, and events that fail when QEMU goes away
    agent           the guest agent: what the guest reports about itself
    observe         the machine as QEMU reports it now
    plan            the steps from that to what is wanted, pure
    act             one step done, safe to repeat
    lifecycle       pause, power, end, and why it stopped

Nothing here keeps state that QEMU does not: the driver of a machine may die at any moment, and the
next one observes, plans and acts from there. Functions take no timeout: use `asyncio.timeout`.
"""
