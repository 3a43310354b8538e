"""Find out how to build and call a class without being told: guesses from names and bodies, then
run and repair by the error.
"""
