"""livevirt: virtual machines that change while they run, behind KubeVirt's API."""

__version__ = "0.2.0.dev0"
