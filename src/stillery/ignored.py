"""The label of a token that is not scored."""

__all__ = ["IGNORED"]

IGNORED = -100
"""What transformers and PyTorch leave out of a cross entropy: padding, prompts, all but the first piece of a word."""
