"""Tests of ``kerf_dra.driver.testing``, and of the example backend that a vendor would test with it."""
