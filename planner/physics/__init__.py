"""The formulas, each in one place with its source: plain functions, SI units, no solver, no files.

Arguments typed ``Num`` may be floats or numpy arrays of them; the formulas are plain arithmetic and broadcast.
"""
