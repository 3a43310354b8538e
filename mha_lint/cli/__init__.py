"""The command line: one module per command, arguments in, text and exit code out."""
