"""The engines that try to tell model and implementation apart, and the command line."""
