"""Sends notifications: when, by which way, and with what content."""
