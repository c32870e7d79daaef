"""Tests a program of a user, the system under test, in lockstep with the model.

    program    the protocol, and the program as the second side of a comparison
    hunt       runs traces on model and program
    serve      an adapter: a program that serves one of our implementations

fuzz/README.md describes the protocol for users.
"""
