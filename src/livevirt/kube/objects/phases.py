"""Words of `status.phase` that several kinds share."""

from __future__ import annotations

#: Where pods, instances, migrations and DataVolumes stay for good.
FINAL = ("Succeeded", "Failed")
