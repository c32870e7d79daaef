"""Exhaustive exploration of a scope.

    search        visits every state and transition, on one machine; checks liveness on the graph
    shared        the search on all cores of a machine
    spark         the search on Spark
    edge_cover    executes every transition in traces from the initial state
    canonical     the law that canonical forms must obey
    counts        the expected numbers of states and transitions

`fuzz/commands/explore.py` is the command.
"""
