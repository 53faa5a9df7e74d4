"""Pure mutation and validation of each kind; the server and the webhooks call the same code."""
