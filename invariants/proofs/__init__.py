"""What a solver has shown about a component."""
