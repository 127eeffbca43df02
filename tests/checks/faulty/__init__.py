"""Ops with one fault each, for the tests of the checks; each in a module, so that a reproduction can import it.

A test imports the module inside itself (`from .faulty import wrong_gradient`), never at the top of its file: ops that
are declared while tests are collected would show up in the tests of `opsmith list`. Names are `faulty::MODULE`.
"""
