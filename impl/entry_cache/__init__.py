"""Entry cache of the broker."""
