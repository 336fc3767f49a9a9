"""One driver a node: how drivers meet, what they tell each other, and who decides."""
