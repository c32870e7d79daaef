"""Range caches at the grain of the source's critical sections."""
