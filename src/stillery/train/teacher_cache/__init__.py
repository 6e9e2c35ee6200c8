"""The teacher's outputs on the training split, kept on disk so that it runs once."""
