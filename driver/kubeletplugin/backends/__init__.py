"""The only door to hardware: one module for each vendor, all behind ``base.Backend``."""
