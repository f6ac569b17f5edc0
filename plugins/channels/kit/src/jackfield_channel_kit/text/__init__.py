"""Text between CommonMark and what platforms speak: `render`, `split`, `parse`, `stream`."""
