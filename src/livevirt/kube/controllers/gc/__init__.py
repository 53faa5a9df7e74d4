"""Garbage collection over owner references, for a server that has no cluster to do it.

- `index`: which objects name an owner. Objects without owners cost nothing.
- `plan`: what must happen to one object, given its owners and dependents. Pure.
- `collector`: follows the store, reads again, follows the plan.

Before anything is done an object is read again, and every write names the uid (changes also the
version) it is meant for; so what is remembered may be late but never does harm.
"""
