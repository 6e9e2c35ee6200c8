"""The only room that knows the insides of transformers."""
