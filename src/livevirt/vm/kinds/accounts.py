"""Who of the users is a part of livevirt itself."""

from __future__ import annotations

from livevirt.kube.objects.request import User

COMPONENTS = "system:serviceaccount:kubevirt:"


def is_component(user: User) -> bool:
    """Tell whether a user is one of our own service accounts."""
    return user.name.startswith(COMPONENTS)
