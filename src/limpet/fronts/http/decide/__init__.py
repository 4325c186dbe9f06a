"""Decide: who may call, and the answer to each kind of request."""
