"""What lies beside a script is imported from there."""

INPUTS = 4
