"""Readers of capture formats."""
