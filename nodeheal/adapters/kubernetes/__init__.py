"""Everything specific to Kubernetes: its API, its objects, its terms. A cluster is an EKS cluster of this account."""
