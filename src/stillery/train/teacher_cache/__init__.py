"""The teacher cache: the teacher's outputs on the training split, stored on disk so that it runs once."""
