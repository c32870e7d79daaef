"""Transfer of a bundle's topics between brokers without client lookups (PIP-307, reviewed as PIP-281)."""
