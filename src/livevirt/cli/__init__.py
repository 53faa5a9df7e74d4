"""The commands `livevirt` and `virtctl`."""
