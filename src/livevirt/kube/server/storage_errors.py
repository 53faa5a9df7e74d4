"""What a client is answered when the database cannot be read or written."""

from __future__ import annotations

from livevirt.errors import ApiError, InsufficientStorage, ServiceUnavailable, StoreError
from livevirt.kube.store import StoreFull

RETRY = {"retryAfterSeconds": 1}  # clients of Kubernetes try again after so long, ten times


def answer(error: StoreError) -> ApiError:
    """Return the retryable refusal for an error of the store."""
    kind = InsufficientStorage if isinstance(error, StoreFull) else ServiceUnavailable
    return kind(str(error), details=RETRY)
