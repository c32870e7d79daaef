"""How to drive each component: the `subject` of each module (`fuzz/subject.py`). Data, no logic.

The functions of a module are

    domains      (config, state) -> the values of an argument; a value that occurs several times is drawn more often
    situation    (config, state) -> the name of the situation, which selects weights of the next action
    coverage     (config, state) -> the coverage key; coverage does not distinguish states with the same key
    measures     (state) -> a number that scopes bound
    twin         `from_tla`: (config, variables of the TLA+ twin) -> the model's state
    corruptions  (config, state) -> the state with one thing wrong, or None if this is not possible in the state. The
                 docstring says what is wrong
"""
