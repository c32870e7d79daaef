"""Negative-ack tracker with compressed buckets."""
