"""Measurements that belong to one component."""
