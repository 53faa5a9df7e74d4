"""The common instance types and preferences, generated from a compact table."""
