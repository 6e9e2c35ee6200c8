"""The kinds of models: one module for each, with a `KIND` that says all that is special about it."""
