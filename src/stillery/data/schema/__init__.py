"""Contents of data files: column roles, labels, splits and examples."""
