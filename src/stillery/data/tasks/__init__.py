"""Named tasks: what they are, where their files are, how they are read."""
