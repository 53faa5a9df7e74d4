"""From a VirtualMachine to its instance, and from an instance to its pod."""
