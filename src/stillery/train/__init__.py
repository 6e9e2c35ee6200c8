"""One loop for every method: objective, teacher, loop, checkpoint."""
