"""What tests of several folders share. None of its modules is a test."""
