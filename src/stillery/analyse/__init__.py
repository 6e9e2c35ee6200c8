"""Why it works: the papers' analyses of teacher and student layers."""
