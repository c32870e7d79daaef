"""The known defects of shipped versions and proposals: one table a component, its reader, its page."""
