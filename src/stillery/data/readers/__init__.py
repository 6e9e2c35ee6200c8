"""Readers and writers of data files, one module per format."""
