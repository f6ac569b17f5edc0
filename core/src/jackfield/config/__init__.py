"""The configuration: where it lies, what it may say, how it is read and edited (architecture 2; C198-C200)."""
