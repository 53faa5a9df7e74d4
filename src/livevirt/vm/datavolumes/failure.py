"""Why a disk could not be filled, sorted by whether trying again can help."""

from __future__ import annotations

from livevirt.errors import LivevirtError, Terminal
from livevirt.files.directories import write_problem


class ImportFailed(LivevirtError):
    """It did not work this time; the message says what to look at."""

    reason = "Error"


class ImageMissing(ImportFailed):
    """The image store has no image of that name."""

    reason = "ImagePullFailed"


class ImportRefused(Terminal):
    """What was offered can never become this disk."""


def of_system(error: OSError, where: str) -> ImportFailed:
    """Return what an error of the operating system means for an import."""
    return ImportFailed(write_problem(error, where))
