"""How to drive each component. Data, no logic."""
