"""Data: files and named tasks in, examples, tokens and batches out."""
