"""Sound ops with one fault seeded into each: the tests of the checker.

A theme is a module; importing it declares its ops, so it is imported inside of tests, never while they are collected.
`library.every()` imports them all.
"""
