"""What is written and read: the schema of a trace, its writer and reader, and the folder of a run."""
