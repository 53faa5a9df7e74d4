"""The verbs of `virtctl`, one module per group of verbs."""
