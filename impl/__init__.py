"""The same behaviour as the specification, with structures whose cost is right."""
