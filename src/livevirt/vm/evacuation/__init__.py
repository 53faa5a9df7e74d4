"""Evacuation: migrates guests off nodes that are drained, and guests whose pod is evicted.

It guarantees that only guests whose eviction strategy asks for it are migrated, no more in
parallel than may migrate, and that the mark of an eviction is cleared once the guest has left.
"""
