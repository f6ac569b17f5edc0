"""What Jackfield's channels share.

Import the module that you need (`jackfield_channel_kit.text.render`, `.http`, `.verify`, ...): nothing is imported
here, and httpx2 and markdown-it are loaded when they are first used.
"""
