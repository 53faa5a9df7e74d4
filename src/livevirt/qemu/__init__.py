"""QEMU: command line, QMP session, observe, plan, act, guest agent. Knows no Kubernetes."""
