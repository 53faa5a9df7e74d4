"""Every error livevirt raises on purpose, sorted by what the caller can do.

LivevirtError
├── ApiError           the API server refused; carries Kubernetes' `code` and `reason`
│   ├── NotFound       usually an answer, not a failure
│   ├── Conflict       read again, decide again
│   ├── AlreadyExists  it was created before
│   ├── Invalid        the object breaks a rule; `details.causes` name the fields
│   ├── Forbidden      not allowed, or over a quota
│   ├── Expired        the watch or page is too old: list again
│   ├── ServiceUnavailable   the server cannot do it now: try again later
│   └── InsufficientStorage  the server's disk is full: free some space, then try again
├── QmpError
│   ├── CommandFailed  QEMU understood and refused; `kind` is QEMU's error class
│   ├── UnplugRefused  the guest kept the device
│   ├── NotNow         QEMU cannot do it at this moment: ask again
│   └── Disconnected   the outcome is unknown: observe before acting again
├── Terminal           no retry can help: shown on the object, not requeued
├── ImageError         an image cannot be imported; see `livevirt.node.oci`
└── StoreError         the database cannot be used; see `livevirt.kube.store.errors`
"""

from __future__ import annotations

from typing import Any, ClassVar


class LivevirtError(Exception):
    """The root: anything livevirt itself raises on purpose."""


class ApiError(LivevirtError):
    """The API server refused; becomes (or came from) a Kubernetes Status object."""

    code: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        reason: str | None = None,
        details: dict[str, Any] | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status_code = self.code if code is None else code
        self.status_reason = self.reason if reason is None else reason
        self.details = details or {}
        self.warnings = warnings  # sent along with the refusal

    def status(self) -> dict[str, Any]:
        """Return the Status object for the client."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.status_reason:
            status["reason"] = self.status_reason
        if self.details or self.status_code == 404:  # `kubectl debug` counts on those of a 404
            status["details"] = self.details
        status["code"] = self.status_code
        return status

    @staticmethod
    def of(status: dict[str, Any], code: int) -> ApiError:
        """Return the error that a Status object (or a missing one) stands for."""
        reason = status.get("reason") or ""
        kind = next((k for k in _BY_REASON if k.reason == reason), ApiError)
        return kind(
            status.get("message") or f"the server answered {code}",
            code=status.get("code") or code,
            reason=reason,
            details=status.get("details"),
        )


class NotFound(ApiError):
    """There is no such object or path."""

    code = 404
    reason = "NotFound"


class Conflict(ApiError):
    """The object changed since it was read, or a precondition failed."""

    code = 409
    reason = "Conflict"


class AlreadyExists(ApiError):
    """An object of that name is there already."""

    code = 409
    reason = "AlreadyExists"


class Invalid(ApiError):
    """The object breaks a rule of its kind."""

    code = 422
    reason = "Invalid"


class BadRequest(ApiError):
    """The request cannot be understood."""

    code = 400
    reason = "BadRequest"


class Forbidden(ApiError):
    """Understood and not allowed."""

    code = 403
    reason = "Forbidden"


class Unauthorized(ApiError):
    """The user is not authenticated."""

    code = 401
    reason = "Unauthorized"


class MethodNotAllowed(ApiError):
    """The resource does not have this verb."""

    code = 405
    reason = "MethodNotAllowed"


class NotAcceptable(ApiError):
    """None of the media types the client accepts can be made."""

    code = 406
    reason = "NotAcceptable"


class UnsupportedMediaType(ApiError):
    """The body is in an unsupported media type."""

    code = 415
    reason = "UnsupportedMediaType"


class RequestEntityTooLarge(ApiError):
    """The body is over the limit."""

    code = 413
    reason = "RequestEntityTooLarge"


class Expired(ApiError):
    """The revision asked for is no longer kept: list again."""

    code = 410
    reason = "Expired"


class Timeout(ApiError):
    """The answer did not come in time; the request may be tried again."""

    code = 504
    reason = "Timeout"


class TooManyRequests(ApiError):
    """Try again later."""

    code = 429
    reason = "TooManyRequests"


class ServiceUnavailable(ApiError):
    """The server cannot answer at the moment; the request may be tried again."""

    code = 503
    reason = "ServiceUnavailable"


class InsufficientStorage(ApiError):
    """The server's disk has no space for the write; nothing was changed."""

    code = 507
    reason = "InsufficientStorage"


_BY_REASON: tuple[type[ApiError], ...] = (
    NotFound,
    Conflict,
    AlreadyExists,
    Invalid,
    BadRequest,
    Forbidden,
    Unauthorized,
    MethodNotAllowed,
    NotAcceptable,
    UnsupportedMediaType,
    RequestEntityTooLarge,
    Expired,
    Timeout,
    TooManyRequests,
    ServiceUnavailable,
    InsufficientStorage,
)


class StoreError(LivevirtError):
    """The database cannot be used as asked."""


class Terminal(LivevirtError):
    """No retry can help: shown on the object, not requeued."""


class QmpError(LivevirtError):
    """Something between us and QEMU's monitor."""


class CommandFailed(QmpError):
    """QEMU understood the command and refused it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class UnplugRefused(QmpError):
    """The guest kept the device."""


class NotNow(QmpError):
    """QEMU cannot do it at this moment; a little later it can."""


class Disconnected(QmpError):
    """QEMU went away; the outcome of what was asked is unknown."""
