"""One client interface, twice: `local` in the server's own process, `remote` over HTTP.

Both raise the same refusals and return the same objects, so what is written against
`interface.Client` runs on either. `local` imports no HTTP, TLS or YAML.
"""
