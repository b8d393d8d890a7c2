"""Kubernetes manifests of studies."""
