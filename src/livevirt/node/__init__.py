"""The node agent: runs pods as QEMU processes and reports what is true."""
