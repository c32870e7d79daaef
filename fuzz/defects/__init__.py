"""The known defects of shipped versions and proposals: a table for each component, its reader, and the page."""
