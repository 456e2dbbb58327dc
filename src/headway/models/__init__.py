"""Models on disk: what they are, where they come from, and how they open.

:func:`headway.models.catalog.resolve` turns what a user typed into a path;
:func:`headway.models.loading.open_checkpoint` turns a path into a
:class:`headway.models.checkpoint.Checkpoint`, whatever the file format.
"""
