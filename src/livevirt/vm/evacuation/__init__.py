"""Evacuation: guests leave nodes that are drained, and those their eviction was asked for on.

It promises: only guests whose eviction strategy wants it are moved, no more at a time than may
migrate, and the mark of an eviction goes once the guest has left.
"""
