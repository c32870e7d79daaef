"""What the entry cache promises.

A property that some shipped version breaks says so in its last sentence.
"""

from __future__ import annotations
