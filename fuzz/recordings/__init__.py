"""How recordings of the real system map to each component."""
