"""From what the user names to a built module and the arguments of one call.

`scan` and `resolve` read source only; `open` imports torch and runs user code, guarded.
"""
