"""Imported by each Python that starts with this folder in PYTHONPATH; see its other modules."""

import contextlib
import os

with contextlib.suppress(ImportError):  # a Python without livevirt has nothing to instrument
    if os.environ.get("SCRAMBLE_MESSAGES"):
        import scrambling

        scrambling.install()
    if os.environ.get("RECORD_STATUS_WRITERS"):
        import recording

        recording.install()
