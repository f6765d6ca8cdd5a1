"""Gangs on a Kubernetes cluster: placed as a whole, and released to the cluster's own scheduler pod by pod."""
