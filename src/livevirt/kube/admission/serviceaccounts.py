"""ServiceAccounts: names to run under; DELETE answers with the account itself."""

from __future__ import annotations

from livevirt.kube.objects.review import Rules


class ServiceAccountRules(Rules):
    """What a ServiceAccount must be: nothing beyond its metadata."""

    delete_returns_object = True
