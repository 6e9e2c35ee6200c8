"""Named benchmark tasks: specifications, location of their files, and readers."""
