"""What is trained: built-in models on real data, or a user's own factory."""
