"""Negative-ack tracker in little memory, with runs that cost what they redeliver."""
