"""Unmodified objects of other frameworks, each to be served in the environment of its package."""
