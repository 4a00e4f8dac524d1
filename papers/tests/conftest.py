"""What every test of fedskew may rely on holds here, too: see tests/conftest.py."""

from support.fixtures import data_dir, one_thread, pytest_runtest_setup  # noqa: F401
