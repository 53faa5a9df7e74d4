"""The group subresources.kubevirt.io: one call, its options, and the table of verbs."""
