"""What runs on a Kubernetes cluster in place of the embedded server: CRDs, webhooks, certificates.

The rules themselves are those of `livevirt.vm`; nothing here decides about virtual machines.
"""
