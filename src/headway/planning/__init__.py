"""From what is promised to what is set up."""
