"""Campaigns: fuzzing on Spark in rounds that can be resumed."""
