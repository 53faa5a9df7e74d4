"""The VM controller: starts and stops instances as run strategies and requests say.

It promises: a VM has at most one instance, named like it; what a person asked for is done once;
nothing is written into a VM's spec but the run strategy of a start that was asked for.
"""
