"""Range caches and their removal queue, with concurrent threads (PIP-430)."""
