"""Settings of the whole suite."""

import os

from hypothesis import settings

# A shared machine makes any example slow at times. In CI the same examples are tried every time; elsewhere new ones.
settings.register_profile("suite", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("suite")
