"""A real Kubernetes control plane on loopback, with the controllers of training jobs, and a small kubelet."""
