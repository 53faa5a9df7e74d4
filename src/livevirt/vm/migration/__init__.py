"""The migration controller: gets a guest to another node, one step at a time.

It promises: a migration never has two target pods; no more migrations go on than the limits allow;
a final migration stays final. It hands a guest to its nodes and then only listens: from the
handoff on the nodes alone decide where the guest runs, and a cancelled migration is asked to stop,
never pulled away under them. Each step can be told from the objects, so a controller that dies
anywhere goes on where it was.
"""
