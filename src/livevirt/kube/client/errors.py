"""What can go wrong between a client and its server, besides refusals.

ApiError
└── Unreachable    no answer came; whether a write was done is unknown
LivevirtError
└── ConfigError    the kubeconfig, or what it points to, cannot be used
"""

from __future__ import annotations

from livevirt.errors import ApiError, LivevirtError


class Unreachable(ApiError):
    """The connection failed or broke: observe before acting again."""

    code = 503
    reason = "ServiceUnavailable"


class ConfigError(LivevirtError):
    """How to reach the server, or as whom, cannot be found out."""
