"""Commands that print what the installed families know, without cluster and hardware."""
