"""The three ways to say what shall change in a stored object.

`merge` and `json` follow RFC 7386 and RFC 6902, `strategic` is Kubernetes' own. Each module has one
`apply` that returns the patched object and leaves what it was given as it was. A patch that cannot
be understood is a BadRequest; one that is understood and does not fit the object is Invalid.
"""
