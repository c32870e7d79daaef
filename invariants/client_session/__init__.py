"""Guarantees of a client's session: those of its user, and what each step of the protocol does."""
