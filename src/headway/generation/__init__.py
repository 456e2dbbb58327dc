"""Text in, text out: prompts to requests, and the engine's events back to text."""
