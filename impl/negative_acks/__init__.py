"""Negative-ack tracker with compressed buckets. The cost of a timer run is proportional to what it redelivers."""
