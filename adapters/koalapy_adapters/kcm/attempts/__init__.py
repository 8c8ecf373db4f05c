"""Decisions about attempts: reactions that take events and return actions, without input or output."""
