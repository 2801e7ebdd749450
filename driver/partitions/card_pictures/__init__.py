"""Pictures of cards. The package is pure."""
