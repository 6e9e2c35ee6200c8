"""The search for the smallest student that is within a margin of its teacher, or the best one under a limit."""
