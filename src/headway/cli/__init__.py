"""The command line: one thin file a command, with its heavy imports inside ``run``.

A command is a row of :data:`headway.cli.commands.COMMANDS` and a module with two functions:
``configure(parser)`` adds its arguments, ``run(args)`` does the work and returns the exit code.
``args.json`` is there for every command: with it, one JSON object goes to standard output and
nothing else does.
"""
