"""The agent in a pod: it reads its own Node object, and writes nothing to Kubernetes."""
