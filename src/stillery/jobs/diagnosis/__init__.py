"""Diagnosis of a finished run: what may keep its student from being better, each with a measured number."""
