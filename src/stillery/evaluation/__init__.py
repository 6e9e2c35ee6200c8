"""How good a model is, how sure that is, how it compares with its teacher, and what it costs."""
