"""Runs sessions, exchanges, streams, asks and readers. Only this layer has long-lived tasks."""
