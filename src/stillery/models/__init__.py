"""Models: the only package that depends on the internals of transformers."""
