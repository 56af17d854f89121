"""The command line: arguments in, one line of verbs, answers for people or as JSON.

``main`` is the process and its exit status, ``app`` the assembled parser, ``commands`` the verbs, one file each.
Nothing heavy is imported before a command runs, so that help is quick.
"""
