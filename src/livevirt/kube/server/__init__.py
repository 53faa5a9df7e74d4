"""The Kubernetes API over HTTP: one module per verb and per subresource."""
