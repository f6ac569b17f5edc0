"""The tools with which an agent talks: messages, files, edits, reactions, cards and questions."""
