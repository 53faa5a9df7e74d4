"""The heart, pure: expansion, defaulting, resource maths, the verdict on every changed field."""
