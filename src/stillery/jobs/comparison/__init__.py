"""Models side by side: the table of several finished runs, or of models scored together, and how far they differ."""
