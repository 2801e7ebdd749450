"""Manifests that are planned: their documents, each with its place and what is wrong with it, and their workloads."""
