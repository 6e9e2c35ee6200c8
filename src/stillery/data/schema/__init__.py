"""What a file holds: columns and their roles, labels, splits, examples."""
