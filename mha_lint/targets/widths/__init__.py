"""Explanations of width errors, one file per kind of error."""
