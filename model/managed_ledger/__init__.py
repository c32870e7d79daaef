"""The managed ledger of a topic with its cursors, dispatchers and entry cache."""
