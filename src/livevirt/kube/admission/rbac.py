"""Roles and their bindings as objects: rules that can be read, references that stay."""

from __future__ import annotations

from livevirt.kube.objects import names
from livevirt.kube.objects.field_error import FieldError, invalid, not_supported, required
from livevirt.kube.objects.request import Object
from livevirt.kube.objects.review import Review, Rules

GROUP = "rbac.authorization.k8s.io"
_SUBJECTS = ("ServiceAccount", "User", "Group")


class RoleRules(Rules):
    """What a Role or ClusterRole must be."""

    name_rule = staticmethod(names.validate_path_segment)  # `system:node` is a name here

    def __init__(self, *, namespaced: bool) -> None:
        self._namespaced = namespaced

    def validate(self, review: Review) -> list[FieldError]:
        """List rules that grant nothing or mix resources with paths."""
        found = []
        for at, rule in enumerate(review.new.get("rules") or []):
            found += self._rule_errors(f"rules[{at}]", rule)
        return found

    def _rule_errors(self, path: str, rule: Object) -> list[FieldError]:
        found = []
        if not rule.get("verbs"):
            found.append(required(f"{path}.verbs", "verbs must contain at least one value"))
        if urls := rule.get("nonResourceURLs"):
            if self._namespaced:
                why = "namespaced rules cannot apply to non-resource URLs"
                found.append(invalid(f"{path}.nonResourceURLs", urls, why))
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                why = "rules cannot apply to both regular resources and non-resource URLs"
                found.append(invalid(f"{path}.nonResourceURLs", urls, why))
            return found
        if not rule.get("apiGroups"):
            found.append(
                required(f"{path}.apiGroups", "resource rules must supply at least one api group")
            )
        if not rule.get("resources"):
            found.append(
                required(f"{path}.resources", "resource rules must supply at least one resource")
            )
        return found


class BindingRules(Rules):
    """What a RoleBinding or ClusterRoleBinding must be."""

    name_rule = staticmethod(names.validate_path_segment)

    def __init__(self, *, namespaced: bool) -> None:
        self._namespaced = namespaced

    def default(self, obj: Object) -> None:
        """Name the group of users, groups and the role where it was left out."""
        if obj.get("roleRef"):
            obj["roleRef"]["apiGroup"] = obj["roleRef"].get("apiGroup") or GROUP
        for subject in obj.get("subjects") or []:
            if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
                subject["apiGroup"] = GROUP

    def validate(self, review: Review) -> list[FieldError]:
        """List a role that changed or cannot be, and subjects that cannot be."""
        new, old = review.new, review.old
        role = new.get("roleRef") or {}
        if old is not None and role != old.get("roleRef"):
            return [invalid("roleRef", role, "cannot change roleRef")]
        kinds = ("Role", "ClusterRole") if self._namespaced else ("ClusterRole",)
        found = []
        if role.get("apiGroup") != GROUP:
            found.append(not_supported("roleRef.apiGroup", role.get("apiGroup", ""), [GROUP]))
        if role.get("kind") not in kinds:
            found.append(not_supported("roleRef.kind", role.get("kind", ""), kinds))
        if not role.get("name"):
            found.append(required("roleRef.name"))
        for at, subject in enumerate(new.get("subjects") or []):
            found += self._subject_errors(f"subjects[{at}]", subject)
        return found

    def _subject_errors(self, path: str, subject: Object) -> list[FieldError]:
        found = []
        if not subject.get("name"):
            found.append(required(f"{path}.name"))
        kind = subject.get("kind", "")
        if kind not in _SUBJECTS:
            found.append(not_supported(f"{path}.kind", kind, _SUBJECTS))
        elif kind == "ServiceAccount" and not self._namespaced and not subject.get("namespace"):
            found.append(required(f"{path}.namespace"))
        return found
