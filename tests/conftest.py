"""What every test run shares: how hard hypothesis looks. HYPOTHESIS_PROFILE picks `dev`, `ci` or `nightly`."""

import os

from hypothesis import settings

# No deadline per example: the machine is shared, and a slow example is not a wrong one.
settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=500, deadline=None, print_blob=True)
settings.register_profile("nightly", max_examples=20_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
