"""One hypothesis profile for every test: no deadlines, because a busy machine is no fault of the code."""

from hypothesis import settings

settings.register_profile("gitops", deadline=None, print_blob=True)
settings.load_profile("gitops")
