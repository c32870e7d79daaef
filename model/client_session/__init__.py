"""A producer and a consumer of one client, and what their broker answers (binary protocol, PIP-307)."""
