"""Comparison of models: a table of several finished runs, or of models scored together, with paired differences."""
