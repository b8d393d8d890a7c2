"""Manifests of studies for Kubernetes."""
