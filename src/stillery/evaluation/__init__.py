"""Metrics of a model with confidence intervals, its comparison with its teacher, and its cost."""
