"""The built-in kinds as rows of one table, and for each its defaults, its validation and its printed columns."""
