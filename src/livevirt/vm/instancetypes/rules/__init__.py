"""Instance types and preferences: what a VM that names them stands for.

`resolution` finds what the matchers name, `expansion` makes of it the template a VM without
matchers would have. Everything after that, the verdict on an edit too, sees the expanded template
only; so switching an instance type is the same as editing the sizes by hand.
"""
