"""What must always hold, sometimes happen, eventually come true."""
