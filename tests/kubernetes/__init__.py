"""A real Kubernetes control plane and real controllers of jobs; skipped where they are not built."""
