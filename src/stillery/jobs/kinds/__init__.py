"""The kinds of models: one module or package each, whose `KIND` holds everything specific to it."""
