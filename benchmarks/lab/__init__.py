"""The lab: questions about batching, each answered by an experiment; the pages of ``docs/lab``."""
