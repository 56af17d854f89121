"""Reproducible measurements: ``./dev bench`` lists them, ``./dev bench NAME`` runs one.

Every figure is printed with its unit and as a ratio to a floor measured in the same run, in rounds that take turns, so
that a noisy machine changes both alike. Absolute numbers on shared machines mean little.
"""
