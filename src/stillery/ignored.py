"""The label of tokens that are left out of the loss and of scores."""

__all__ = ["IGNORED"]

IGNORED = -100
"""The index that cross entropy ignores in PyTorch and transformers: padding, prompts, all but a word's first piece."""
