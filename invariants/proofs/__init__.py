"""Claims about components, proved by Z3 or checked by CrossHair (`claim.py`)."""
