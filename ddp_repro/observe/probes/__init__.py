"""What is attached from outside to watch training: each ``attach`` returns the callable that takes it off again."""
