"""Attempts: reactions to wrapper reports, batch statuses, missing attempts and cancels. No owner is known here."""
