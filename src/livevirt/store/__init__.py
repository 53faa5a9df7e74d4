"""Embedded storage on SQLite: one revision counter, durable writes, watch from a kept revision."""
