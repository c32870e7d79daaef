"""Optimised implementations of the components. Each has all settings of its model, and the model's `reference` rules.

The methods of an implementation are named as the model's actions, and the docstrings in `model/` describe what they do.
The docstrings here have what `model/` does not say, such as complexities. `fuzz/README.md` explains how to compare your
own implementation with a model.
"""
