"""Negative acknowledgements tracker."""
