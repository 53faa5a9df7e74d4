"""Imported by every Python that starts with this folder in PYTHONPATH: scrambles its messages."""

import contextlib

with contextlib.suppress(ImportError):  # a Python without livevirt writes no messages
    import scrambling

    scrambling.install()
