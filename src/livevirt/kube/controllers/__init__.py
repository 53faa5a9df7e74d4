"""One module or folder per concern; each brings the world towards its objects' specs."""
