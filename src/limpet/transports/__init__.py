"""Transports move bytes and decide nothing."""
