"""Replay: captured statements are asked again on both sides, and every answer is judged."""
