"""What clients of KubeVirt are told about a build, theirs and the server's."""

from __future__ import annotations

import platform

from livevirt import __version__

PATH = "/apis/subresources.kubevirt.io/v1/version"


def info() -> dict[str, str]:
    """Return the fields of KubeVirt's version answer, as far as they mean something here."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "gitVersion": f"v{__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{machine}",
    }


def text(told: dict[str, str]) -> str:
    """Return a version answer in the one line that `virtctl version` prints."""
    fields = (
        "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform",
    )  # fmt: skip
    shown = ", ".join(f'{name[0].upper()}{name[1:]}:"{told.get(name, "")}"' for name in fields)
    return f"version.Info{{{shown}}}"


def differ(one: str, other: str) -> bool:
    """Tell whether two versions differ in more than a patch level."""
    return one.lstrip("v").split(".")[:2] != other.lstrip("v").split(".")[:2]
