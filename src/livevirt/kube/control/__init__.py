"""What every controller is made of; none of it has heard of virtual machines.

The parts promise:

- `queue`: a key is worked on by one worker at a time; adding it while it is worked on means it
  is worked on again; adding it twice before that means once. Keys wait their turn in the order
  they came. A failing key waits longer each time and delays no other.
- `informer`: the cache equals what the server holds, late by no more than the stream is. After a
  gap, handlers are called for every difference, deletions too, as if it had happened just now.
- `controller`: a reconcile is called with a key, never with an event; whatever it raises, the
  loop goes on and the key comes back, unless it raised `Terminal`.
- `events`: emitting never waits and never raises; repeats are folded, floods are dropped.
- `lease`: at most one holder works at a time, whatever the wall clocks say.
"""
