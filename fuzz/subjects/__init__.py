"""How to drive each component: the arguments, weights and bounds by which engines choose actions.

Each module has one `subject`, whose fields `fuzz/subject.py` describes.

Most functions of a module are values of these fields:

    domains     (config, state) -> the values of an argument; a value that occurs several times is drawn more often
    situation   (config, state) -> the name of the situation, by which `in_situation` changes the weights of actions
    abstract    (config, state) -> the coverage key; coverage does not distinguish states with the same key
    measures    (state) -> a number that scopes (bounds of an exploration) may bound
    from_tla    (config, variables of the twin: the model in TLA+) -> the model's state
    corrupt     (config, state) -> the state with one mistake, or None if the state cannot have this mistake. The
                docstring of the function describes the mistake
"""
