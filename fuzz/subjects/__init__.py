"""How to drive each component: the `subject` of each module (`fuzz/subject.py`). Data, no logic.

The functions of a module are

    domains      (config, state) -> the values of an argument; a value that occurs several times is drawn more often
    situation    (config, state) -> the name of the situation, which selects weights of the next action
    coverage     (config, state) -> the coverage key: what states with one key have in common
    measures     (state) -> a number that scopes bound
    twin         `from_tla` -> the model's state for the variables of the TLA+ twin
    corruptions  (config, state) -> the state with one thing wrong, which the docstring says; None if that does not
                 fit the state
"""
