"""A node's part in live migrations: one state machine for each side.

What the package promises:

- **One guest.** A guest never runs in two QEMUs. The target runs it only after a note on disk has
  its arrival; the source resumes it only after the instance reports that the migration failed.
- **Nothing important in memory.** The state of either side is computed, by pure functions in
  `states`, from the instance's `status.migrationState`, the pod's notes and QEMU's answers. An
  agent that was killed reaches the same state from the same facts.
- **One decision, one place.** `facts.side` alone decides which side of a migration a pod is on.

`states` decides, `source` and `target` act, one object per pod and migration. `migrations` starts
them and reports to the instance by the patches of `status`. `facts` reads the instance and the
pod's `notes` on disk, `limits` the migration's settings. `handover` is where both sides of one
machine meet, and `stop` settles migrations when the agent stops in an orderly way.
"""
