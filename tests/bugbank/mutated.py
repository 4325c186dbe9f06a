"""A plugin of pytest: the process tests a mutant (`mutants.py`)."""

from tests.bugbank.mutants import apply_from_environment

apply_from_environment()
