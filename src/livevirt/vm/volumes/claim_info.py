"""What the status of an instance tells of a claim."""

from __future__ import annotations

from livevirt.kube.objects.request import Object


def claim_info(claim: Object) -> Object:
    """Return `persistentVolumeClaimInfo` of a claim."""
    spec, status = claim["spec"], claim.get("status") or {}
    info = {
        "claimName": claim["metadata"]["name"],
        "accessModes": spec.get("accessModes"),
        "volumeMode": spec.get("volumeMode"),
        "capacity": status.get("capacity"),
        "requests": (spec.get("resources") or {}).get("requests"),
        "filesystemOverhead": "0" if spec.get("volumeMode") == "Block" else "0.055",
    }
    return {name: value for name, value in info.items() if value}
